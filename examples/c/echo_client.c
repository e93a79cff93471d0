/* Sends a message, and prints what comes back.
 *
 * usage: echo_client HOST:PORT KEY TRANSPORT MESSAGE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sunder_transport.h"

static int failed(void) {
    fprintf(stderr, "error: %s\n", sunder_error_text());
    return EXIT_FAILURE;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: echo_client HOST:PORT KEY TRANSPORT MESSAGE\n");
        return 2;
    }
    const char *message = arguments[4];
    sunder_options *options = sunder_options_new();
    if (options == NULL) return failed();
    if (sunder_options_add_peer_key(options, arguments[2]) < 0) return failed();
    if (sunder_options_set_transport(options, arguments[3]) < 0) return failed();
    sunder_connection *connection = sunder_connect(arguments[1], options);
    sunder_options_free(options);
    if (connection == NULL) return failed();

    uint8_t *answer;
    size_t size;
    if (sunder_connection_send(connection, message, strlen(message)) < 0) return failed();
    int32_t received = sunder_connection_receive(connection, 1 << 20, &answer, &size);
    if (received < 0) return failed();
    if (received == 1) {
        printf("%s: %.*s\n", sunder_connection_transport(connection), (int)size, answer);
        sunder_message_free(answer, size);
    }
    sunder_connection_close(connection);
    return received == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
