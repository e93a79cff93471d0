// Two parties of a protocol that is written for EMP-toolkit's channels: each sends the other numbers
// and adds what it receives to its own.
//
// usage: two_parties ADDRESS PORT TRANSPORT   both parties, in two threads
#include <cstdlib>
#include <future>
#include <iostream>
#include <numeric>
#include <vector>

#include "sunder_io.h"

// A template over the channel, as the protocols of EMP-toolkit are.
template <typename IO>
std::uint64_t party(IO &io, std::uint64_t first) {
    std::vector<std::uint64_t> own(100000), other(own.size());
    std::iota(own.begin(), own.end(), first);
    io.sync();
    io.send_data(own.data(), static_cast<std::int64_t>(own.size() * sizeof own[0]));
    io.recv_data(other.data(), static_cast<std::int64_t>(other.size() * sizeof other[0]));
    auto sum = std::accumulate(own.begin(), own.end(), std::uint64_t{0});
    sum = std::accumulate(other.begin(), other.end(), sum);
    // The last message of a party has to be flushed: nothing is received after it.
    io.send_data(&sum, sizeof sum);
    io.flush();
    std::uint64_t agreed = 0;
    io.recv_data(&agreed, sizeof agreed);
    if (agreed != sum) throw std::runtime_error("the parties do not agree");
    return sum;
}

int main(int count, char **arguments) try {
    if (count != 4) {
        std::cerr << "usage: two_parties ADDRESS PORT TRANSPORT\n";
        return 2;
    }
    sunder::Options alice, bob;
    alice.peer_key(bob.public_key());
    bob.peer_key(alice.public_key()).transport(arguments[3]);
    sunder::Listener listener(std::string(arguments[1]) + ":" + arguments[2], alice);
    auto of_alice = std::async(std::launch::async, [&] {
        sunder::SunderIO io(listener.accept(), true);
        return party(io, 1);
    });
    const std::string address = listener.address();
    const int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
    sunder::SunderIO io(arguments[1], port, bob);
    const std::uint64_t of_bob = party(io, 1000);
    std::cout << io.connection().transport() << ": " << of_alice.get() << ' ' << of_bob << ", "
              << io.counter << " bytes sent\n";
} catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
