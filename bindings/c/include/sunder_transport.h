/* sunder_transport.h - one connection over many transports, for C and what calls C.
 *
 * A connection is an encrypted, authenticated byte stream between two parties over the transport
 * that is named, or, with "auto", over the one that is predicted to be fastest on this path for
 * the exchange that is expected.
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
 * failure, in the thread in which it happened, until the next call of this library that fails
 * there. No function ends the process. A null pointer where none is allowed is SUNDER_USAGE.
 *
 * Threads. A handle is used by one thread at a time; it may be passed from one thread to another.
 * A connection or listener that two threads use at once is not damaged: the second call fails
 * with SUNDER_BUSY. To read in one thread and write in another, split the connection
 * (sunder_connection_split); to end one that another thread waits for, abort it
 * (sunder_connection_abort). No function may run on a handle while, or after, it is closed or freed.
 *
 * Buffering. Bytes that are written wait in a buffer until it is full, until a flush, or until
 * the same handle is read: a program that writes and then waits for the answer needs no flush.
 * After a split, reading flushes nothing: the thread that writes calls sunder_connection_flush()
 * before it waits for something else.
 *
 * Strings are UTF-8 and end with a zero byte. Sizes and lengths are in bytes.
 *
 * Link with -lsunder_transport; `pkg-config --cflags --libs sunder-transport` gives the flags, with
 * --static those of the static library.
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
    SUNDER_USAGE = -1,             /* a null pointer, text that is no UTF-8, an option that does not exist */
    SUNDER_FAILED = -2,            /* the system refused something: the text says what */
    SUNDER_UNREACHABLE = -3,       /* the name has no address, or nobody listens there */
    SUNDER_TIMED_OUT = -4,         /* the peer did not answer in time; the text names the step */
    SUNDER_NOT_AUTHENTICATED = -5, /* the peer does not have the key that was given, or forged data */
    SUNDER_CLOSED = -6,            /* the connection has ended, before all that was expected arrived */
    SUNDER_TOO_LONG = -7,          /* a message is longer than allowed, a text than the buffer */
    SUNDER_BUSY = -8,              /* another thread uses the handle */
    SUNDER_BUG = -9                /* a bug of the library; the handle can only be closed */
} sunder_code;

/* What happened in this thread's last call that failed: a sunder_code, SUNDER_OK if none failed. */
int32_t sunder_error_code(void);

/* The same in words, on one line, without a period. Empty if no call failed in this thread. Valid
 * until the next call that fails in this thread. */
const char *sunder_error_text(void);

/* The version of the library, as "0.1.0". */
const char *sunder_version(void);

/* The name of a transport, by its index from 0; NULL past the last one. For a list to choose from;
 * "auto" is not in it. */
const char *sunder_transport_name(size_t index);

/* --- Options ------------------------------------------------------------------------------ */

/* How to connect or listen. Each option has a default; to connect, the peer's key is needed. */
typedef struct sunder_options sunder_options;

/* Options with the defaults: "auto", encrypted, and a secret key of random bytes, which nothing else
 * has. */
sunder_options *sunder_options_new(void);

/* Frees options; connections and listeners that were made with them stay. NULL is allowed. */
void sunder_options_free(sunder_options *options);

/* The transport to connect by: "auto" or a name. A listener accepts every transport. */
int32_t sunder_options_set_transport(sunder_options *options, const char *name);

/* Reads the own secret key from a file: 64 hexadecimal digits that only its owner can read. */
int32_t sunder_options_set_identity_file(sunder_options *options, const char *path);

/* Adds a public key, 64 hexadecimal digits, that the peer may have. To connect, exactly one is
 * needed. A listener without any accepts each peer that knows the listener's public key. */
int32_t sunder_options_add_peer_key(sunder_options *options, const char *key);

/* No encryption and no authentication: whoever is on the path can read and change everything. */
int32_t sunder_options_set_insecure(sunder_options *options);

/* Lets "udp", which sends nothing again, be used on a path that was seen to lose packets. */
int32_t sunder_options_set_accept_loss(sunder_options *options);

/* TCP's congestion control, as "bbr" or "cubic". */
int32_t sunder_options_set_congestion_control(sunder_options *options, const char *name);

/* What a connection is going to carry, for the choice of "auto" and the size of buffers: bytes that
 * this side sends, bytes that it receives, and how often it waits for an answer: 1 if all bytes go
 * one way. */
int32_t sunder_options_set_expected_exchange(sunder_options *options, uint64_t sent,
                                             uint64_t received, uint32_t rounds);

/* How long the transport's set-up may take, and then each step of the handshake: 4,500 ms unless
 * set. */
int32_t sunder_options_set_connect_timeout(sunder_options *options, uint32_t milliseconds);

/* How long a read or write may wait: 0, the default, is as long as the peer is there. */
int32_t sunder_options_set_timeout(sunder_options *options, uint32_t milliseconds);

/* Writes the own public key, 64 hexadecimal digits and a zero byte: what the peer passes to
 * sunder_options_add_peer_key. */
int32_t sunder_options_public_key(const sunder_options *options, char *text, size_t size);

/* --- Connections -------------------------------------------------------------------------- */

/* One end of a connection, or, after sunder_connection_split, one direction of it. */
typedef struct sunder_connection sunder_connection;

/* Connects to HOST:PORT, or to TOKEN@HOST:PORT, where one waits at a relay. Blocks until the peer is
 * authenticated. */
sunder_connection *sunder_connect(const char *address, const sunder_options *options);

/* Reads at least one byte and at most size. Returns how many; 0 at the end of the stream, or if
 * size is 0. Flushes first what this handle has written. */
int64_t sunder_connection_read(sunder_connection *connection, void *buffer, size_t size);

/* Reads exactly size bytes. A stream that ends before is SUNDER_CLOSED. */
int32_t sunder_connection_read_exact(sunder_connection *connection, void *buffer, size_t size);

/* Writes all bytes; blocks while the path does not take them. */
int32_t sunder_connection_write(sunder_connection *connection, const void *bytes, size_t size);

/* Sends what waits in the buffer. */
int32_t sunder_connection_flush(sunder_connection *connection);

/* Writes a message of any length, also 0; it waits in the buffer as bytes do. Messages and bytes may
 * alternate, if both sides agree on the order. */
int32_t sunder_connection_send(sunder_connection *connection, const void *message, size_t size);

/* Receives one message, of at most max bytes. Returns 1 and sets *message and *size: free it with
 * sunder_message_free. Returns 0 at the end of the stream. After a message that is too long
 * (SUNDER_TOO_LONG) the connection can only be closed. */
int32_t sunder_connection_receive(sunder_connection *connection, size_t max, uint8_t **message,
                                  size_t *size);

/* Frees a received message. NULL is allowed. */
void sunder_message_free(uint8_t *message, size_t size);

/* Splits a connection: from now on this handle only reads, and the one that is returned only
 * writes, each in a thread of its own. Both are closed with sunder_connection_close. */
sunder_connection *sunder_connection_split(sunder_connection *connection);

/* Ends the direction to the peer: it reads all that was written, then the end of the stream. Returns
 * when all that will arrive even if the process ends, unless the peer has sent what is not read.
 * Reading goes on. */
int32_t sunder_connection_finish(sunder_connection *connection);

/* Says that the exchange is complete that sunder_options_set_expected_exchange has announced. What it
 * took corrects the choice of "auto" for the next one to the same host. Not on a half that reads. */
int32_t sunder_connection_complete(sunder_connection *connection);

/* What a connection has done so far. What its transport does not measure is 0. */
typedef struct sunder_statistics {
    size_t size;                /* set by the caller: sizeof(sunder_statistics) */
    uint64_t bytes_sent;        /* written to the connection */
    uint64_t bytes_received;    /* read from it */
    uint64_t packets_sent;      /* those sent again included */
    uint64_t packets_sent_again;
    uint64_t round_trip_ns;     /* the mean round-trip time */
    uint64_t min_round_trip_ns; /* the least one */
    uint64_t delivery_rate;     /* at which the path delivers, in bytes per second */
} sunder_statistics;

/* Fills as many fields as statistics->size has room for. */
int32_t sunder_connection_statistics(const sunder_connection *connection,
                                     sunder_statistics *statistics);

/* The name of the transport that the connection uses. Valid as long as the program runs. */
const char *sunder_connection_transport(const sunder_connection *connection);

/* Writes the peer's public key, 64 hexadecimal digits and a zero byte. Empty if the connection is
 * insecure. */
int32_t sunder_connection_peer_key(const sunder_connection *connection, char *text, size_t size);

/* Ends the connection at once, from any thread, also while others use it or its other half: what
 * waits there fails with SUNDER_CLOSED. The handles stay, to be closed. */
int32_t sunder_connection_abort(sunder_connection *connection);

/* Sends what waits in the buffer, closes the connection and frees the handle. It does not say
 * whether everything arrived: sunder_connection_finish does. NULL is allowed. */
void sunder_connection_close(sunder_connection *connection);

/* --- Listeners ---------------------------------------------------------------------------- */

/* Accepts connections on one port number, of TCP and UDP. */
typedef struct sunder_listener sunder_listener;

/* Listens on ADDRESS:PORT; port 0 takes any that is free. */
sunder_listener *sunder_listen(const char *address, const sunder_options *options);

/* Waits for connections at a relay, HOST:PORT, where `sunder transport relay` runs: for two parties
 * that do not reach each other. Both connect to it; it passes on what they encrypt. */
sunder_listener *sunder_listen_via(const char *relay, const sunder_options *options);

/* Writes the address to connect to, as ADDRESS:PORT, or TOKEN@HOST:PORT at a relay, and a zero byte;
 * 320 bytes are enough. */
int32_t sunder_listener_address(const sunder_listener *listener, char *text, size_t size);

/* Waits for the next connection. A peer that is not authenticated is no connection and no error. */
sunder_connection *sunder_listener_accept(sunder_listener *listener);

/* The same, but waits for so long at most: then it is SUNDER_TIMED_OUT. */
sunder_connection *sunder_listener_accept_timeout(sunder_listener *listener,
                                                  uint32_t milliseconds);

/* Stops listening and frees the handle; accepted connections stay. NULL is allowed. */
void sunder_listener_close(sunder_listener *listener);

#ifdef __cplusplus
}
#endif

#endif
