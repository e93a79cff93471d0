/* Both ends of connections, in two threads: bytes, messages, halves, statistics, keys.
 *
 * usage: streams BYTES [EXCEPT]   how many bytes go each way at once, over all transports except
 * one */
#include <pthread.h>

#include "check.h"

struct end {
    sunder_listener *listener;
    size_t bytes;
    char client_key[65];
};

static unsigned char byte_at(size_t i, unsigned seed) { return (unsigned char)(i * 31 + i / 251 + seed); }

struct flow {
    sunder_connection *half;
    size_t bytes;
    unsigned seed;
};

/* Writes a stream in pieces of unequal sizes, and ends the direction. */
static void *send_all(void *argument) {
    struct flow *flow = argument;
    unsigned char piece[10007];
    for (size_t at = 0; at < flow->bytes;) {
        size_t count = at % sizeof piece + 1;
        if (count > flow->bytes - at) count = flow->bytes - at;
        for (size_t i = 0; i < count; i++) piece[i] = byte_at(at + i, flow->seed);
        CHECK(sunder_connection_write(flow->half, piece, count) == SUNDER_OK);
        at += count;
    }
    CHECK(sunder_connection_finish(flow->half) == SUNDER_OK);
    return NULL;
}

/* Reads the stream of the other side to its end. */
static void receive_all(sunder_connection *half, size_t bytes, unsigned seed) {
    unsigned char piece[8192];
    size_t at = 0;
    for (;;) {
        int64_t count = sunder_connection_read(half, piece, sizeof piece);
        CHECK(count >= 0);
        if (count == 0) break;
        for (int64_t i = 0; i < count; i++) CHECK(piece[i] == byte_at(at + (size_t)i, seed));
        at += (size_t)count;
    }
    CHECK(at == bytes);
}

/* Sends and receives at once, in two threads on the halves. */
static void both_ways(sunder_connection *connection, size_t bytes, unsigned own, unsigned other) {
    sunder_connection *writer = sunder_connection_split(connection);
    CHECK(writer != NULL);
    FAILS_NULL(sunder_connection_split(connection), SUNDER_USAGE, "split already");
    FAILS(sunder_connection_write(connection, "x", 1), SUNDER_USAGE, "only reads");
    FAILS(sunder_connection_read(writer, &own, 1), SUNDER_USAGE, "only writes");
    struct flow flow = {writer, bytes, own};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_all, &flow) == 0);
    receive_all(connection, bytes, other);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strlen(sunder_connection_transport(writer)) > 0);
    sunder_connection_close(writer);
}

struct reading {
    sunder_connection *connection;
    int64_t result;
};

static void *read_byte(void *argument) {
    struct reading *reading = argument;
    char byte;
    reading->result = sunder_connection_read(reading->connection, &byte, 1);
    return NULL;
}

static void *accept_and_read(void *argument) {
    struct end *end = argument;
    sunder_connection *connection = sunder_listener_accept(end->listener);
    CHECK(connection != NULL);
    CHECK(sunder_connection_write(connection, "x", 1) == SUNDER_OK);
    char byte;
    CHECK(sunder_connection_read(connection, &byte, 1) <= 0);
    sunder_connection_close(connection);
    return NULL;
}

/* Both ends wait for a byte; then this one ends the connection. */
static void end_it(struct end *end, const char *address, sunder_options *client) {
    pthread_t peer, thread;
    CHECK(pthread_create(&peer, NULL, accept_and_read, end) == 0);
    struct reading reading = {sunder_connect(address, client), 1};
    CHECK(reading.connection != NULL);
    char byte;
    CHECK(sunder_connection_read(reading.connection, &byte, 1) == 1);
    CHECK(pthread_create(&thread, NULL, read_byte, &reading) == 0);
    CHECK(sunder_connection_abort(reading.connection) == SUNDER_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(reading.result == SUNDER_CLOSED);
    sunder_connection_close(reading.connection);
    CHECK(pthread_join(peer, NULL) == 0);
}

static void *serve(void *argument) {
    struct end *end = argument;
    sunder_connection *connection = sunder_listener_accept(end->listener);
    CHECK(connection != NULL);
    char key[65];
    CHECK(sunder_connection_peer_key(connection, key, sizeof key) == SUNDER_OK);
    CHECK(strcmp(key, end->client_key) == 0);
    /* Ten messages are ten messages, the empty one too. */
    for (size_t i = 0; i < 10; i++) {
        uint8_t *message;
        size_t size;
        CHECK(sunder_connection_receive(connection, 100000, &message, &size) == 1);
        CHECK(size == i * 1111);
        CHECK(sunder_connection_send(connection, message, size) == SUNDER_OK);
        sunder_message_free(message, size);
    }
    both_ways(connection, end->bytes, 1, 2);
    sunder_connection_close(connection);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2 || count == 3);
    sunder_options *server = sunder_options_new(), *client = sunder_options_new();
    CHECK(server != NULL && client != NULL);
    struct end end = {0};
    end.bytes = (size_t)strtoull(arguments[1], NULL, 10);
    char server_key[65], address[64];
    CHECK(sunder_options_public_key(client, end.client_key, sizeof end.client_key) == SUNDER_OK);
    CHECK(sunder_options_public_key(server, server_key, sizeof server_key) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(server, end.client_key) == SUNDER_OK);
    CHECK(sunder_options_add_peer_key(client, server_key) == SUNDER_OK);
    CHECK(sunder_options_set_expected_exchange(client, 1000000, 1000000, 2) == SUNDER_OK);

    end.listener = sunder_listen("127.0.0.1:0", server);
    CHECK(end.listener != NULL);
    CHECK(sunder_listener_address(end.listener, address, sizeof address) == SUNDER_OK);
    sunder_options_free(server);

    const char *names[16] = {"auto"};
    size_t transports = 1;
    for (const char *name; (name = sunder_transport_name(transports - 1)) != NULL;) {
        CHECK(transports < sizeof names / sizeof *names);
        /* Neither works between every two hosts: one needs a network without loss, one several. */
        int is_tested = count < 3 || strcmp(name, arguments[2]) != 0;
        if (strcmp(name, "udp") == 0 || strcmp(name, "micss") == 0) is_tested = 0;
        if (is_tested) names[transports] = name;
        transports++;
    }
    for (size_t i = 0; i < transports; i++) {
        if (names[i] == NULL) continue;
        CHECK(sunder_options_set_transport(client, names[i]) == SUNDER_OK);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, serve, &end) == 0);
        sunder_connection *connection = sunder_connect(address, client);
        CHECK(connection != NULL);
        const char *used = sunder_connection_transport(connection);
        CHECK(i == 0 || strcmp(used, names[i]) == 0);
        char key[65];
        CHECK(sunder_connection_peer_key(connection, key, sizeof key) == SUNDER_OK);
        CHECK(strcmp(key, server_key) == 0);

        unsigned char sent[9999] = {7};
        for (size_t message = 0; message < 10; message++) {
            CHECK(sunder_connection_send(connection, sent, message * 1111) == SUNDER_OK);
        }
        for (size_t message = 0; message < 10; message++) {
            uint8_t *answer = NULL;
            size_t size = 0;
            CHECK(sunder_connection_receive(connection, 100000, &answer, &size) == 1);
            CHECK(size == message * 1111 && memcmp(answer, sent, size) == 0);
            sunder_message_free(answer, size);
        }
        sunder_statistics statistics = {.size = sizeof statistics};
        CHECK(sunder_connection_statistics(connection, &statistics) == SUNDER_OK);
        CHECK(statistics.bytes_sent >= 45 * 1111 && statistics.bytes_received >= 45 * 1111);
        /* A program compiled with an older, shorter structure. */
        sunder_statistics shorter = {.size = offsetof(sunder_statistics, packets_sent)};
        shorter.packets_sent = 77;
        CHECK(sunder_connection_statistics(connection, &shorter) == SUNDER_OK);
        CHECK(shorter.bytes_received == statistics.bytes_received && shorter.packets_sent == 77);

        both_ways(connection, end.bytes, 2, 1);
        sunder_connection_close(connection);
        CHECK(pthread_join(thread, NULL) == 0);
        end_it(&end, address, client);
        printf("%s: %s\n", names[i], used);
    }
    sunder_options_free(client);
    sunder_listener_close(end.listener);
    return 0;
}
