/* What fails, with which code and text. */
#include <pthread.h>

#include "check.h"

static void null_pointers(void) {
    char text[65];
    uint8_t *message;
    size_t size;
    sunder_statistics statistics = {.size = sizeof statistics};
    sunder_options *options = sunder_options_new();
    FAILS(sunder_options_set_transport(NULL, "tcp"), SUNDER_USAGE, "options");
    FAILS(sunder_options_set_transport(options, NULL), SUNDER_USAGE, "name is a null pointer");
    FAILS(sunder_options_set_identity_file(options, NULL), SUNDER_USAGE, "path");
    FAILS(sunder_options_add_peer_key(options, NULL), SUNDER_USAGE, "key");
    FAILS(sunder_options_set_insecure(NULL), SUNDER_USAGE, "options");
    FAILS(sunder_options_set_accept_loss(NULL), SUNDER_USAGE, "options");
    FAILS(sunder_options_set_congestion_control(options, NULL), SUNDER_USAGE, "name");
    FAILS(sunder_options_set_expected_exchange(NULL, 1, 1, 1), SUNDER_USAGE, "options");
    FAILS(sunder_options_set_connect_timeout(NULL, 1), SUNDER_USAGE, "options");
    FAILS(sunder_options_set_timeout(NULL, 1), SUNDER_USAGE, "options");
    FAILS(sunder_options_public_key(NULL, text, 65), SUNDER_USAGE, "options");
    FAILS(sunder_options_public_key(options, NULL, 65), SUNDER_USAGE, "buffer");
    FAILS_NULL(sunder_connect(NULL, options), SUNDER_USAGE, "address");
    FAILS_NULL(sunder_connect("127.0.0.1:1", NULL), SUNDER_USAGE, "options");
    FAILS_NULL(sunder_listen(NULL, options), SUNDER_USAGE, "address");
    FAILS_NULL(sunder_listen("127.0.0.1:0", NULL), SUNDER_USAGE, "options");
    FAILS_NULL(sunder_listen_via(NULL, options), SUNDER_USAGE, "relay");
    FAILS_NULL(sunder_listener_accept(NULL), SUNDER_USAGE, "listener");
    FAILS_NULL(sunder_listener_accept_timeout(NULL, 1), SUNDER_USAGE, "listener");
    FAILS(sunder_connection_abort(NULL), SUNDER_USAGE, "connection");
    FAILS(sunder_listener_address(NULL, text, 65), SUNDER_USAGE, "listener");
    FAILS(sunder_connection_read(NULL, text, 1), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_read_exact(NULL, text, 1), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_write(NULL, text, 1), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_flush(NULL), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_send(NULL, text, 1), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_receive(NULL, 1, &message, &size), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_finish(NULL), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_complete(NULL), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_statistics(NULL, &statistics), SUNDER_USAGE, "connection");
    FAILS(sunder_connection_peer_key(NULL, text, 65), SUNDER_USAGE, "connection");
    FAILS_NULL(sunder_connection_split(NULL), SUNDER_USAGE, "connection");
    FAILS_NULL(sunder_connection_transport(NULL), SUNDER_USAGE, "connection");
    sunder_options_free(options);
    /* To free nothing is allowed. */
    sunder_options_free(NULL);
    sunder_connection_close(NULL);
    sunder_listener_close(NULL);
    sunder_message_free(NULL, 0);
}

static void *another_thread(void *nothing) {
    CHECK(sunder_error_code() == SUNDER_OK && sunder_error_text()[0] == '\0');
    sunder_connection_flush(NULL);
    CHECK(sunder_error_code() == SUNDER_USAGE);
    return nothing;
}

static void wrong_options(const char *folder) {
    char path[4096], key[65], text[64];
    sunder_options *options = sunder_options_new();
    FAILS(sunder_options_set_transport(options, "pigeon"), SUNDER_USAGE, "pigeon");
    CHECK(strstr(sunder_error_text(), "tcp") != NULL);
    FAILS(sunder_options_set_transport(options, "\xff\xfe"), SUNDER_USAGE, "UTF-8");
    FAILS(sunder_options_add_peer_key(options, "1234"), SUNDER_USAGE, "64 digits");
    snprintf(path, sizeof path, "%s/none.key", folder);
    FAILS(sunder_options_set_identity_file(options, path), SUNDER_FAILED, "none.key");
    FAILS(sunder_options_public_key(options, text, sizeof text), SUNDER_TOO_LONG, "65 bytes");
    CHECK(sunder_options_public_key(options, key, sizeof key) == SUNDER_OK);

    /* An error stays until the next one, and is of its thread only. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    said(SUNDER_TOO_LONG, "65 bytes");

    /* Of RFC 8032, 7.1: a secret key and its public key. */
    snprintf(path, sizeof path, "%s/test.key", folder);
    CHECK(sunder_options_set_identity_file(options, path) == SUNDER_OK);
    CHECK(sunder_options_public_key(options, key, sizeof key) == SUNDER_OK);
    CHECK(strcmp(key, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c") == 0);
    FAILS_NULL(sunder_connect("127.0.0.1:1", options), SUNDER_USAGE, "key");
    sunder_options_free(options);
}

struct waiting {
    sunder_connection *connection;
    int64_t result;
    int32_t code;
};

static void *read_one(void *argument) {
    struct waiting *waiting = argument;
    char byte;
    do {
        waiting->result = sunder_connection_read(waiting->connection, &byte, 1);
    } while (waiting->result == SUNDER_BUSY); /* the main thread asks for the statistics */
    waiting->code = sunder_error_code();
    return NULL;
}

struct pair {
    sunder_listener *listener;
    sunder_connection *accepted;
};

static void *accept_one(void *argument) {
    struct pair *pair = argument;
    pair->accepted = sunder_listener_accept(pair->listener);
    CHECK(pair->accepted != NULL);
    return NULL;
}

static void broken_connections(void) {
    char address[64], key[65], text[8];
    sunder_options *server = sunder_options_new(), *client = sunder_options_new();
    CHECK(sunder_options_set_transport(client, "tcp") == SUNDER_OK);
    struct pair pair = {sunder_listen("127.0.0.1:0", server), NULL};
    CHECK(pair.listener != NULL);
    FAILS_NULL(sunder_listener_accept_timeout(pair.listener, 50), SUNDER_TIMED_OUT, "in time");
    FAILS(sunder_listener_address(pair.listener, text, 8), SUNDER_TOO_LONG, "8");
    CHECK(sunder_listener_address(pair.listener, address, sizeof address) == SUNDER_OK);
    FAILS_NULL(sunder_listen(address, server), SUNDER_FAILED, "listen");
    CHECK(sunder_options_public_key(server, key, sizeof key) == SUNDER_OK);

    /* The listener has another key than the client was given. */
    char other_key[65];
    CHECK(sunder_options_public_key(client, other_key, sizeof other_key) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(client, other_key) == SUNDER_OK);
    CHECK(sunder_options_set_connect_timeout(client, 2000) == SUNDER_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, accept_one, &pair) == 0);
    CHECK(sunder_connect(address, client) == NULL);
    CHECK(sunder_error_code() == SUNDER_NOT_AUTHENTICATED || sunder_error_code() == SUNDER_CLOSED);
    sunder_options_free(client);

    /* The right one; the failed one was no connection to the listener. */
    client = sunder_options_new();
    CHECK(sunder_options_set_transport(client, "tcp") == SUNDER_OK);
    CHECK(sunder_options_set_timeout(client, 200) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(client, key) == SUNDER_OK);
    sunder_connection *connection = sunder_connect(address, client);
    CHECK(connection != NULL);
    CHECK(pthread_join(thread, NULL) == 0);

    /* Nothing arrives. */
    FAILS(sunder_connection_read(connection, text, 1), SUNDER_TIMED_OUT, "waiting");
    CHECK(sunder_connection_read(connection, NULL, 0) == 0);
    FAILS(sunder_connection_read(connection, NULL, 1), SUNDER_USAGE, "buffer");
    FAILS(sunder_connection_write(connection, NULL, 1), SUNDER_USAGE, "buffer");
    FAILS(sunder_connection_write(connection, text, SIZE_MAX), SUNDER_USAGE, "a buffer");
    FAILS(sunder_connection_peer_key(connection, text, 8), SUNDER_TOO_LONG, "65");
    sunder_statistics statistics = {0};
    FAILS(sunder_connection_statistics(connection, &statistics), SUNDER_USAGE, "size");

    /* One thread at a time: the other one waits for a byte until it comes. */
    struct waiting waiting = {pair.accepted, 0, 0};
    CHECK(pthread_create(&thread, NULL, read_one, &waiting) == 0);
    int32_t code;
    while ((code = sunder_connection_statistics(pair.accepted, &statistics)) != SUNDER_BUSY) {
        CHECK(code == SUNDER_USAGE); /* not yet */
    }
    said(SUNDER_BUSY, "split");
    CHECK(sunder_connection_write(connection, "x", 1) == SUNDER_OK);
    CHECK(sunder_connection_flush(connection) == SUNDER_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waiting.result == 1);

    /* A message that is too long, and an end in the middle of what is expected. */
    uint8_t *message = NULL;
    size_t size = 0;
    FAILS(sunder_connection_receive(connection, 1, NULL, &size), SUNDER_USAGE, "message");
    CHECK(sunder_connection_send(connection, "four", 4) == SUNDER_OK);
    CHECK(sunder_connection_write(connection, "xy", 2) == SUNDER_OK);
    CHECK(sunder_connection_finish(connection) == SUNDER_OK);
    FAILS(sunder_connection_receive(pair.accepted, 3, &message, &size), SUNDER_TOO_LONG, "4");
    CHECK(message == NULL && size == 0);
    char rest[16];
    FAILS(sunder_connection_read_exact(pair.accepted, rest, 7), SUNDER_CLOSED, "");
    CHECK(sunder_connection_read(pair.accepted, rest, 1) == 0);
    CHECK(sunder_connection_receive(pair.accepted, 3, &message, &size) == 0);
    sunder_connection_close(pair.accepted);
    sunder_connection_close(connection);

    /* A peer that is gone: an error, and not the signal that ends programs (SIGPIPE). */
    CHECK(pthread_create(&thread, NULL, accept_one, &pair) == 0);
    connection = sunder_connect(address, client);
    CHECK(connection != NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    sunder_connection_close(pair.accepted);
    static char much[1 << 20];
    while ((code = sunder_connection_write(connection, much, sizeof much)) == SUNDER_OK) {
    }
    CHECK(code == SUNDER_CLOSED && sunder_error_text()[0] != '\0');
    sunder_connection_close(connection);
    sunder_listener_close(pair.listener);

    /* Nobody listens there any more; and a name that has no address. */
    FAILS_NULL(sunder_connect(address, client), SUNDER_UNREACHABLE, "nobody listens there");
    FAILS_NULL(sunder_connect("127.0.0.1", client), SUNDER_USAGE, "127.0.0.1");
    FAILS_NULL(sunder_connect("host.invalid:1", client), SUNDER_UNREACHABLE, "host.invalid");
    sunder_options_free(server);
    sunder_options_free(client);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(sunder_error_code() == SUNDER_OK && sunder_error_text()[0] == '\0');
    CHECK(sunder_version()[0] != '\0');
    null_pointers();
    wrong_options(arguments[1]);
    broken_connections();
    printf("done\n");
    return 0;
}
