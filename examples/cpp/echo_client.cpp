// Sends a message, and prints what comes back.
//
// usage: echo_client HOST:PORT KEY TRANSPORT MESSAGE
#include <iostream>

#include "sunder_transport.hpp"

int main(int count, char **arguments) try {
    if (count != 5) {
        std::cerr << "usage: echo_client HOST:PORT KEY TRANSPORT MESSAGE\n";
        return 2;
    }
    auto options = sunder::Options().peer_key(arguments[2]).transport(arguments[3]);
    auto connection = sunder::connect(arguments[1], options);
    connection.send(arguments[4]);
    auto answer = connection.receive();
    if (!answer) return 1;
    std::cout << connection.transport() << ": " << *answer << '\n';
} catch (const sunder::Error &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
