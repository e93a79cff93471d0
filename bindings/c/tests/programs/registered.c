/* Adds a transport over Unix-domain sockets, and sends in both directions over it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "sunder_transport.h"

enum { SIZE = 3000000 };

/* The abstract socket for the port of an address. */
static socklen_t socket_name(const char *address, struct sockaddr_un *name) {
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    int length = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "sunder-c-%s",
                          strrchr(address, ':') + 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* A stream or an acceptor is a file descriptor in memory of its own. */
static int32_t give(int descriptor, void **out) {
    if (descriptor < 0) return errno == ECONNREFUSED ? SUNDER_UNREACHABLE : SUNDER_FAILED;
    int *place = malloc(sizeof *place);
    if (place == NULL) return SUNDER_FAILED;
    *place = descriptor;
    *out = place;
    return SUNDER_OK;
}

static int descriptor(void *handle) { return *(int *)handle; }

static int32_t connect_unix(void *context, const char *address, uint32_t milliseconds,
                            void **stream) {
    (void)milliseconds;
    ++*(int *)context;
    struct sockaddr_un name;
    socklen_t length = socket_name(address, &name);
    int opened = socket(AF_UNIX, SOCK_STREAM, 0);
    if (opened >= 0 && connect(opened, (struct sockaddr *)&name, length) != 0) {
        int error = errno;
        close(opened);
        errno = error;
        opened = -1;
    }
    return give(opened, stream);
}

static int32_t listen_unix(void *context, const char *address, void **acceptor) {
    (void)context;
    struct sockaddr_un name;
    socklen_t length = socket_name(address, &name);
    int opened = socket(AF_UNIX, SOCK_STREAM, 0);
    if (opened < 0) return SUNDER_FAILED;
    if (bind(opened, (struct sockaddr *)&name, length) != 0 || listen(opened, 16) != 0) {
        close(opened);
        return SUNDER_FAILED;
    }
    return give(opened, acceptor);
}

static int32_t accept_unix(void *acceptor, void **stream) {
    return give(accept(descriptor(acceptor), NULL, NULL), stream);
}

static void shut(void *handle) { shutdown(descriptor(handle), SHUT_RDWR); }

static void release(void *handle) {
    close(descriptor(handle));
    free(handle);
}

static int64_t code(ssize_t count) {
    if (count >= 0) return count;
    return errno == EAGAIN ? SUNDER_TIMED_OUT : SUNDER_CLOSED;
}

static int64_t read_unix(void *stream, void *buffer, size_t size) {
    return code(recv(descriptor(stream), buffer, size, 0));
}

static int64_t write_unix(void *stream, const void *bytes, size_t size) {
    return code(send(descriptor(stream), bytes, size, MSG_NOSIGNAL));
}

static int32_t finish_unix(void *stream) {
    return shutdown(descriptor(stream), SHUT_WR) == 0 ? SUNDER_OK : SUNDER_CLOSED;
}

static int32_t limit_unix(void *stream, uint32_t milliseconds) {
    struct timeval limit = {.tv_sec = milliseconds / 1000,
                            .tv_usec = (long)(milliseconds % 1000) * 1000};
    int failed = setsockopt(descriptor(stream), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    failed |= setsockopt(descriptor(stream), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return failed == 0 ? SUNDER_OK : SUNDER_FAILED;
}

static int64_t latency_unix(void *context, const sunder_path *path, uint64_t sent,
                            uint64_t received, uint32_t rounds) {
    (void)context;
    if (path->round_trip_ns > 100000) return -1;
    return (int64_t)((sent + received) / 5 + rounds * path->round_trip_ns / 2);
}

/* Sends back what arrives. */
static void *serve(void *argument) {
    sunder_connection *connection = sunder_listener_accept(argument);
    CHECK(connection != NULL);
    CHECK(strcmp(sunder_connection_transport(connection), "unix") == 0);
    uint8_t *bytes = malloc(SIZE);
    CHECK(bytes != NULL);
    CHECK(sunder_connection_read_exact(connection, bytes, SIZE) == SUNDER_OK);
    CHECK(sunder_connection_write(connection, bytes, SIZE) == SUNDER_OK);
    CHECK(sunder_connection_finish(connection) == SUNDER_OK);
    free(bytes);
    sunder_connection_close(connection);
    return NULL;
}

int main(void) {
    int connected = 0;
    sunder_transport_functions functions = {
        .size = sizeof functions,
        .name = "unix",
        .about = "Unix-domain sockets",
        .context = &connected,
        .connect = connect_unix,
        .listen = listen_unix,
        .accept = accept_unix,
        .stop = shut,
        .free_acceptor = release,
        .read = read_unix,
        .write = write_unix,
        .finish = finish_unix,
        .set_timeout = limit_unix,
        .close = shut,
        .free_stream = release,
        .latency_ns = latency_unix,
    };
    CHECK(sunder_register_transport(NULL) == SUNDER_USAGE);
    sunder_transport_functions wrong = functions;
    wrong.size = sizeof wrong.size;
    CHECK(sunder_register_transport(&wrong) == SUNDER_USAGE);
    wrong = functions;
    wrong.read = NULL;
    CHECK(sunder_register_transport(&wrong) == SUNDER_USAGE);
    CHECK(strstr(sunder_error_text(), "read is missing") != NULL);
    wrong = functions;
    wrong.name = "tcp";
    CHECK(sunder_register_transport(&wrong) == SUNDER_USAGE);
    CHECK(sunder_register_transport(&functions) == SUNDER_OK);
    CHECK(sunder_register_transport(&functions) == SUNDER_USAGE);
    size_t count = 0;
    while (sunder_transport_name(count) != NULL) ++count;
    CHECK(strcmp(sunder_transport_name(count - 1), "unix") == 0);

    /* Keys from memory, and not from files. */
    uint8_t secrets[2][32];
    memset(secrets[0], 7, sizeof secrets[0]);
    memset(secrets[1], 8, sizeof secrets[1]);
    sunder_options *server = sunder_options_new(), *client = sunder_options_new();
    CHECK(server != NULL && client != NULL);
    CHECK(sunder_options_set_identity(server, secrets[0], 31) == SUNDER_USAGE);
    CHECK(sunder_options_set_identity(server, secrets[0], 32) == SUNDER_OK);
    CHECK(sunder_options_set_identity(client, secrets[1], 32) == SUNDER_OK);
    char key[65], client_key[65], peer[65], address[320];
    CHECK(sunder_options_public_key(server, key, sizeof key) == SUNDER_OK);
    CHECK(sunder_options_public_key(client, client_key, sizeof client_key) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(client, key) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(server, client_key) == SUNDER_OK);
    CHECK(sunder_options_set_transport(client, "unix") == SUNDER_OK);

    sunder_listener *listener = sunder_listen("127.0.0.1:0", server);
    CHECK(listener != NULL);
    CHECK(sunder_listener_address(listener, address, sizeof address) == SUNDER_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, listener) == 0);
    sunder_connection *connection = sunder_connect(address, client);
    CHECK(connection != NULL);
    CHECK(connected == 1);
    CHECK(sunder_connection_peer_key(connection, peer, sizeof peer) == SUNDER_OK);
    CHECK(strcmp(peer, key) == 0);
    uint8_t *sent = malloc(SIZE), *received = malloc(SIZE);
    CHECK(sent != NULL && received != NULL);
    for (size_t i = 0; i < SIZE; ++i) sent[i] = (uint8_t)(i * 31 >> 3);
    CHECK(sunder_connection_write(connection, sent, SIZE) == SUNDER_OK);
    CHECK(sunder_connection_read_exact(connection, received, SIZE) == SUNDER_OK);
    CHECK(memcmp(sent, received, SIZE) == 0);
    CHECK(sunder_connection_read(connection, received, SIZE) == 0);
    printf("%s: %d bytes in each direction\n", sunder_connection_transport(connection), SIZE);
    CHECK(pthread_join(thread, NULL) == 0);
    sunder_connection_close(connection);

    /* The same by a socket, for which poll() waits. */
    CHECK(pthread_create(&thread, NULL, serve, listener) == 0);
    connection = sunder_connect(address, client);
    CHECK(connection != NULL);
    int opened = sunder_connection_into_socket(connection);
    CHECK(opened >= 0);
    CHECK(sunder_connection_into_socket(connection) == SUNDER_USAGE);
    sunder_connection_close(connection);
    size_t arrived = 0;
    CHECK(write(opened, sent, SIZE) == SIZE);
    while (arrived < SIZE) {
        struct pollfd ready = {.fd = opened, .events = POLLIN};
        CHECK(poll(&ready, 1, 30000) == 1);
        ssize_t got = read(opened, received + arrived, SIZE - arrived);
        CHECK(got > 0);
        arrived += (size_t)got;
    }
    CHECK(memcmp(sent, received, SIZE) == 0);
    CHECK(read(opened, received, SIZE) == 0);
    close(opened);
    CHECK(pthread_join(thread, NULL) == 0);
    free(sent);
    free(received);
    sunder_listener_close(listener);

    /* Nobody listens any more. */
    while ((connection = sunder_connect(address, client)) != NULL) {
        sunder_connection_close(connection);
    }
    CHECK(sunder_error_code() == SUNDER_UNREACHABLE);
    sunder_options_free(server);
    sunder_options_free(client);
    return 0;
}
