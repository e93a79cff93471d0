/* Sends each message back to whoever sent it.
 *
 * usage: echo_server ADDRESS:PORT */
#include <stdio.h>
#include <stdlib.h>

#include "sunder_transport.h"

static int failed(void) {
    fprintf(stderr, "error: %s\n", sunder_error_text());
    return EXIT_FAILURE;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: echo_server ADDRESS:PORT\n");
        return 2;
    }
    sunder_options *options = sunder_options_new();
    char key[65], address[64];
    if (options == NULL || sunder_options_public_key(options, key, sizeof key) < 0) return failed();
    sunder_listener *listener = sunder_listen(arguments[1], options);
    sunder_options_free(options);
    if (listener == NULL) return failed();
    if (sunder_listener_address(listener, address, sizeof address) < 0) return failed();
    printf("echo_client %s %s\n", address, key);
    fflush(stdout);

    sunder_connection *connection = sunder_listener_accept(listener);
    if (connection == NULL) return failed();
    uint8_t *message;
    size_t size;
    int32_t received;
    while ((received = sunder_connection_receive(connection, 1 << 20, &message, &size)) == 1) {
        int32_t sent = sunder_connection_send(connection, message, size);
        sunder_message_free(message, size);
        if (sent < 0) return failed();
    }
    if (received < 0) return failed();
    sunder_connection_close(connection);
    sunder_listener_close(listener);
    return EXIT_SUCCESS;
}
