/* A process is forked while a connection is open. The child cannot use the connection, and closes
 * it without waiting and without ending it for its parent.
 *
 * usage: forked */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Sends each message back, until there are no more. */
static void *echo(void *listener) {
    sunder_connection *connection = sunder_listener_accept(listener);
    CHECK(connection != NULL);
    uint8_t *message;
    size_t size;
    while (sunder_connection_receive(connection, 100, &message, &size) == 1) {
        CHECK(sunder_connection_send(connection, message, size) == SUNDER_OK);
        sunder_message_free(message, size);
    }
    sunder_connection_close(connection);
    return NULL;
}

static void ask(sunder_connection *connection) {
    uint8_t *answer = NULL;
    size_t size = 0;
    CHECK(sunder_connection_send(connection, "hello", 5) == SUNDER_OK);
    CHECK(sunder_connection_receive(connection, 100, &answer, &size) == 1);
    CHECK(size == 5 && memcmp(answer, "hello", 5) == 0);
    sunder_message_free(answer, size);
}

int main(void) {
    sunder_options *server = sunder_options_new(), *client = sunder_options_new();
    CHECK(server != NULL && client != NULL);
    char key[65], address[64];
    CHECK(sunder_options_public_key(server, key, sizeof key) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(client, key) == SUNDER_OK);
    sunder_listener *listener = sunder_listen("127.0.0.1:0", server);
    CHECK(listener != NULL);
    CHECK(sunder_listener_address(listener, address, sizeof address) == SUNDER_OK);

    const char *name;
    for (size_t i = 0; (name = sunder_transport_name(i)) != NULL; i++) {
        /* One needs a network without loss, the other several networks. */
        if (strcmp(name, "udp") == 0 || strcmp(name, "micss") == 0) continue;
        CHECK(sunder_options_set_transport(client, name) == SUNDER_OK);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, echo, listener) == 0);
        sunder_connection *connection = sunder_connect(address, client);
        CHECK(connection != NULL);
        ask(connection);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* It ends the child if it waits. */
            alarm(20);
            char byte;
            CHECK(sunder_connection_write(connection, "x", 1) <= 0);
            CHECK(sunder_connection_read(connection, &byte, 1) < 0);
            sunder_connection_close(connection);
            sunder_listener_close(listener);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        ask(connection);
        sunder_connection_close(connection);
        CHECK(pthread_join(thread, NULL) == 0);
        printf("%s\n", name);
    }
    sunder_options_free(client);
    sunder_options_free(server);
    sunder_listener_close(listener);
    return 0;
}
