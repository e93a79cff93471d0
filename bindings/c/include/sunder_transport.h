/* sunder_transport.h - one connection over many transports, for C and languages that call C.
 *
 * A connection is an encrypted, authenticated byte stream between two parties. It uses the named
 * transport, or, with "auto", the one that is predicted to be the fastest on this path for the
 * expected exchange.
 *
 *     sunder_options *options = sunder_options_new();
 *     sunder_options_set_identity_file(options, "me.key");
 *     sunder_options_add_peer_key(options, "3d4017c3...12af4660c");
 *     sunder_connection *connection = sunder_connect("192.0.2.7:7700", options);
 *     if (connection == NULL) { fprintf(stderr, "%s\n", sunder_error_text()); exit(1); }
 *     sunder_connection_write(connection, "hello", 5);
 *     int64_t count = sunder_connection_read(connection, buffer, sizeof buffer);
 *
 * Errors. A function that returns a pointer returns NULL when it fails; one that returns an integer
 * returns a negative sunder_code. sunder_error_code() and sunder_error_text() then describe the
 * failure in the thread in which it happened, until the next failing call in that thread. No
 * function ends the process. A null pointer that is not allowed is SUNDER_USAGE.
 *
 * Threads. A handle is used by one thread at a time; it may be passed from one thread to another.
 * If two threads use a connection or listener at once, the second call fails with SUNDER_BUSY,
 * and no damage is done. To read in one thread and write in another, split the connection
 * (sunder_connection_split); to end a connection that another thread waits for, abort it
 * (sunder_connection_abort). No function may use a handle during or after its close or free.
 *
 * Buffering. Written bytes are sent when the buffer is full, on a flush, and before the same handle
 * is read: a program that writes and then reads the answer needs no flush. After a split, a read
 * does not flush: the writing thread must call sunder_connection_flush() before it waits for
 * something else.
 *
 * Strings are UTF-8 and end with a zero byte. Sizes and lengths are in bytes.
 *
 * Link with -lsunder_transport; `pkg-config --cflags --libs sunder-transport` prints the flags; add
 * --static for the static library.
 */
#ifndef SUNDER_TRANSPORT_H
#define SUNDER_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of failure. */
typedef enum sunder_code {
    SUNDER_OK = 0,
    SUNDER_USAGE = -1,             /* a null pointer, text that is not UTF-8, an unknown option */
    SUNDER_FAILED = -2,            /* the system returned an error, which the text describes */
    SUNDER_UNREACHABLE = -3,       /* the name has no address, or no program listens there */
    SUNDER_TIMED_OUT = -4,         /* the peer did not answer in time; the text names the step */
    SUNDER_NOT_AUTHENTICATED = -5, /* the peer does not have the given key, or data was forged */
    SUNDER_CLOSED = -6,            /* the connection ended before all expected data had arrived */
    SUNDER_TOO_LONG = -7,          /* a message exceeds the limit, or a text the buffer */
    SUNDER_BUSY = -8,              /* another thread uses the handle */
    SUNDER_BUG = -9                /* a bug of the library; the handle can only be closed */
} sunder_code;

/* The sunder_code of this thread's last failing call; SUNDER_OK if no call failed. */
int32_t sunder_error_code(void);

/* The text of that error: one line, without a period. Empty if no call failed in this thread. Valid
 * until the next failing call in this thread. */
const char *sunder_error_text(void);

/* The version of the library, as "0.1.0". */
const char *sunder_version(void);

/* The name of the transport with this index, from 0; NULL past the last one. "auto" is not in this
 * list. */
const char *sunder_transport_name(size_t index);

/* --- Options ------------------------------------------------------------------------------ */

/* The options of connections and listeners. All have defaults, but to connect, the peer's key is
 * required. */
typedef struct sunder_options sunder_options;

/* Creates options with the defaults: "auto", encrypted, and a new random secret key. */
sunder_options *sunder_options_new(void);

/* Frees options. Connections and listeners created with them remain valid. NULL is allowed. */
void sunder_options_free(sunder_options *options);

/* Sets the transport for connecting: "auto" or a name. A listener accepts every transport. */
int32_t sunder_options_set_transport(sunder_options *options, const char *name);

/* Reads this end's secret key from a file: 64 hexadecimal digits that only its owner can read. */
int32_t sunder_options_set_identity_file(sunder_options *options, const char *path);

/* Sets this end's secret key: 32 bytes. */
int32_t sunder_options_set_identity(sunder_options *options, const void *key, size_t size);

/* Adds a public key that the peer may have, as 64 hexadecimal digits. To connect, exactly one is
 * required. A listener without any accepts every peer that knows the listener's public key. */
int32_t sunder_options_add_peer_key(sunder_options *options, const char *key);

/* Disables encryption and authentication: anyone on the path can read and change everything. */
int32_t sunder_options_set_insecure(sunder_options *options);

/* Allows "udp", which does not retransmit, on a path that has lost packets. */
int32_t sunder_options_set_accept_loss(sunder_options *options);

/* Sets TCP's congestion control, such as "bbr" or "cubic". */
int32_t sunder_options_set_congestion_control(sunder_options *options, const char *name);

/* Sets the expected exchange, for the choice of "auto" and the size of buffers: the bytes that this
 * side sends, the bytes that it receives, and how often it waits for an answer (1 if all bytes go
 * one way). */
int32_t sunder_options_set_expected_exchange(sunder_options *options, uint64_t sent,
                                             uint64_t received, uint32_t rounds);

/* Sets the time limit for the transport's own setup and then for the handshake. The default is
 * 4,500 ms. */
int32_t sunder_options_set_connect_timeout(sunder_options *options, uint32_t milliseconds);

/* Sets the time limit of each read or write. 0, the default, waits as long as the peer is alive. */
int32_t sunder_options_set_timeout(sunder_options *options, uint32_t milliseconds);

/* Writes this end's public key, 64 hexadecimal digits and a zero byte. The peer passes it to
 * sunder_options_add_peer_key. */
int32_t sunder_options_public_key(const sunder_options *options, char *text, size_t size);

/* --- Connections -------------------------------------------------------------------------- */

/* One end of a connection, or, after sunder_connection_split, one direction of it. */
typedef struct sunder_connection sunder_connection;

/* Connects to HOST:PORT, or through a relay to TOKEN@HOST:PORT. Blocks until the peer is
 * authenticated. */
sunder_connection *sunder_connect(const char *address, const sunder_options *options);

/* Reads at least one byte and at most size. Returns how many; 0 at the end of the stream, or if
 * size is 0. First flushes what was written to this handle. */
int64_t sunder_connection_read(sunder_connection *connection, void *buffer, size_t size);

/* Reads exactly size bytes. If the stream ends before, the error is SUNDER_CLOSED. */
int32_t sunder_connection_read_exact(sunder_connection *connection, void *buffer, size_t size);

/* Writes all bytes; blocks while the transport accepts no more. */
int32_t sunder_connection_write(sunder_connection *connection, const void *bytes, size_t size);

/* Sends what is in the buffer. */
int32_t sunder_connection_flush(sunder_connection *connection);

/* Writes a message of any length, including 0. It is buffered like other bytes. Messages and bytes
 * may alternate if both sides agree on the order. */
int32_t sunder_connection_send(sunder_connection *connection, const void *message, size_t size);

/* Receives one message, of at most max bytes. Returns 1 and sets *message and *size; free
 * the message with sunder_message_free. Returns 0 at the end of the stream. After a message that is
 * too long (SUNDER_TOO_LONG) the connection can only be closed. */
int32_t sunder_connection_receive(sunder_connection *connection, size_t max, uint8_t **message,
                                  size_t *size);

/* Frees a received message. NULL is allowed. */
void sunder_message_free(uint8_t *message, size_t size);

/* Splits a connection: from now on this handle only reads and the returned one only writes, so that
 * two threads can use them. Both must be closed with sunder_connection_close. */
sunder_connection *sunder_connection_split(sunder_connection *connection);

/* Ends the stream to the peer, after everything that was written. Returns when all of that will
 * arrive even if the process ends, unless the peer has sent data that is not read. Reading is still
 * possible. */
int32_t sunder_connection_finish(sunder_connection *connection);

/* Reports that the exchange announced by sunder_options_set_expected_exchange is complete. Its
 * duration corrects the choice of "auto" for the next connection to the same host. Not allowed on a
 * half that reads. */
int32_t sunder_connection_complete(sunder_connection *connection);

/* The statistics of a connection. Values that its transport does not measure are 0. */
typedef struct sunder_statistics {
    size_t size;                /* set by the caller: sizeof(sunder_statistics) */
    uint64_t bytes_sent;        /* written to the connection */
    uint64_t bytes_received;    /* read from it */
    uint64_t packets_sent;      /* including retransmissions */
    uint64_t packets_sent_again;
    uint64_t round_trip_ns;     /* the smoothed round-trip time */
    uint64_t min_round_trip_ns; /* the min RTT */
    uint64_t delivery_rate;     /* of the path, in bytes/s */
} sunder_statistics;

/* Fills as many fields as fit into statistics->size bytes. */
int32_t sunder_connection_statistics(const sunder_connection *connection,
                                     sunder_statistics *statistics);

/* The name of the transport that the connection uses. Valid as long as the program runs. */
const char *sunder_connection_transport(const sunder_connection *connection);

/* Writes the peer's public key, 64 hexadecimal digits and a zero byte. Empty if the connection is
 * insecure. */
int32_t sunder_connection_peer_key(const sunder_connection *connection, char *text, size_t size);

/* Turns a connection into a socket, for poll() and event loops: returns its descriptor, which the
 * caller closes. What is written to it is sent at once, and shutdown(SHUT_WR) ends the stream to the
 * peer. If the connection fails, reading fails with ECONNRESET. Two threads of the library move the
 * bytes. The handle can then only be closed. Not possible after a split. */
int32_t sunder_connection_into_socket(sunder_connection *connection);

/* Ends the connection at once, from any thread, even while other threads use it or its other half:
 * their calls fail with SUNDER_CLOSED. The handles must still be closed. */
int32_t sunder_connection_abort(sunder_connection *connection);

/* Sends what is in the buffer, closes the connection and frees the handle. Only
 * sunder_connection_finish reports whether everything arrived. NULL is allowed. */
void sunder_connection_close(sunder_connection *connection);

/* --- Listeners ---------------------------------------------------------------------------- */

/* Accepts connections on one port number for both TCP and UDP. */
typedef struct sunder_listener sunder_listener;

/* Listens on ADDRESS:PORT; port 0 chooses any free port. */
sunder_listener *sunder_listen(const char *address, const sunder_options *options);

/* Waits for connections at a relay (`sunder transport relay`) on HOST:PORT, for two parties that
 * cannot reach each other. Both connect to the relay, which forwards their encrypted bytes. */
sunder_listener *sunder_listen_via(const char *relay, const sunder_options *options);

/* Writes the address to connect to, as ADDRESS:PORT, or TOKEN@HOST:PORT at a relay, and a zero byte;
 * 320 bytes are enough. */
int32_t sunder_listener_address(const sunder_listener *listener, char *text, size_t size);

/* Waits for the next connection. Peers that fail the authentication are ignored. */
sunder_connection *sunder_listener_accept(sunder_listener *listener);

/* The same with a time limit, after which the error is SUNDER_TIMED_OUT. */
sunder_connection *sunder_listener_accept_timeout(sunder_listener *listener,
                                                  uint32_t milliseconds);

/* Stops listening and frees the handle. Accepted connections remain open. NULL is allowed. */
void sunder_listener_close(sunder_listener *listener);

/* --- Transports of your own ----------------------------------------------------------------- */

/* What is known of a path. Rates are in bytes/s; loss is the fraction of packets, 0 to 1. */
typedef struct sunder_path {
    uint64_t round_trip_ns;
    double rate_to_server;
    double rate_from_server;
    double loss;
} sunder_path;

/* The functions of a transport that your program adds. Connections are reliable streams of bytes in
 * each direction; the library performs its handshake on them and encrypts.
 *
 * Functions that return int32_t or int64_t return a negative sunder_code when they fail. Any thread
 * may call them, also at the same time: one thread reads a stream, another one writes it, and a
 * third one may close it. They must not throw, and must not call this library with a handle that
 * waits for them. Addresses are texts IP:PORT. */
typedef struct sunder_transport_functions {
    size_t size; /* set by the caller: sizeof(sunder_transport_functions) */

    /* 1 to 32 of a-z, 0-9 and -; no other transport has it. */
    const char *name;
    /* Its purpose, in one line. */
    const char *about;
    /* The first argument of connect, listen and latency_ns. */
    void *context;

    /* Connects within the time, and sets *stream. */
    int32_t (*connect)(void *context, const char *address, uint32_t milliseconds, void **stream);

    /* Listens beside the TCP and UDP sockets of a listener, which have this address, and sets
     * *acceptor. NULL if its connections arrive at these sockets. */
    int32_t (*listen)(void *context, const char *address, void **acceptor);
    /* Waits for a connection, and sets *stream. */
    int32_t (*accept)(void *acceptor, void **stream);
    /* Stops listening: an accept that waits in another thread fails. */
    void (*stop)(void *acceptor);
    /* Frees an acceptor. No other call uses it then. */
    void (*free_acceptor)(void *acceptor);

    /* Waits for bytes, and returns how many. 0 is the end: the peer has called finish. */
    int64_t (*read)(void *stream, void *buffer, size_t size);
    /* Waits until some of the bytes are accepted, and returns how many. */
    int64_t (*write)(void *stream, const void *bytes, size_t size);
    /* Ends the stream to the peer. Returns when everything written will arrive. */
    int32_t (*finish)(void *stream);
    /* Sets the time limit of each later read or write, which then fail with SUNDER_TIMED_OUT; 0
     * waits as long as the peer is alive. */
    int32_t (*set_timeout)(void *stream, uint32_t milliseconds);
    /* Closes the connection at once: reads and writes that wait in other threads fail. */
    void (*close)(void *stream);
    /* Frees a stream. No other call uses it then. */
    void (*free_stream)(void *stream);

    /* The latency function, by which "auto" chooses: how many nanoseconds an exchange (see
     * sunder_options_set_expected_exchange) takes over a path. Negative if this transport is not
     * for this path. NULL if "auto" never chooses it. */
    int64_t (*latency_ns)(void *context, const sunder_path *path, uint64_t sent, uint64_t received,
                          uint32_t rounds);
} sunder_transport_functions;

/* Adds a transport, for connections and for listeners that are opened later. Both ends add it. It
 * remains until the process ends, and so must the functions and the context; the texts are copied. */
int32_t sunder_register_transport(const sunder_transport_functions *functions);

#ifdef __cplusplus
}
#endif

#endif
