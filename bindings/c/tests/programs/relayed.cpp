// Two ends that meet at a relay.
//
// usage: relayed HOST:PORT
#include <future>
#include <iostream>

#include "sunder_transport.hpp"

int main(int count, char **arguments) try {
    if (count != 2) return 2;
    sunder::Options server;
    auto listener = sunder::Listener::via(arguments[1], server);
    const std::string address = listener.address();
    auto answering = std::async(std::launch::async, [&] {
        auto connection = listener.accept();
        while (auto message = connection.receive()) connection.send(*message);
    });
    auto client = sunder::Options().peer_key(server.public_key());
    {
        auto connection = sunder::connect(address, client);
        connection.send("hello");
        std::cout << connection.receive().value_or("nothing") << '\n';
    }
    answering.get();
} catch (const sunder::Error &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
