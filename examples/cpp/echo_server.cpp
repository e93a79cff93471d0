// Sends each message back to whoever sent it.
//
// usage: echo_server ADDRESS:PORT
#include <iostream>

#include "sunder_transport.hpp"

int main(int count, char **arguments) try {
    if (count != 2) {
        std::cerr << "usage: echo_server ADDRESS:PORT\n";
        return 2;
    }
    sunder::Options options;
    sunder::Listener listener(arguments[1], options);
    std::cout << "echo_client " << listener.address() << ' ' << options.public_key() << std::endl;

    sunder::Connection connection = listener.accept();
    while (auto message = connection.receive()) connection.send(*message);
} catch (const sunder::Error &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
