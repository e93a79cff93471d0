// Two millionaires learn who is richer, and nothing else of each other's wealth: a program of
// EMP-toolkit (emp-sh2pc).
//
// usage: millionaires PARTY PORT WEALTH [ADDRESS]                            over emp::NetIO
//        millionaires PARTY PORT WEALTH KEY_FILE PEER_KEY TRANSPORT [ADDRESS]
//
// PARTY is 1 or 2. Party 1 waits at PORT, and party 2 connects to ADDRESS. The second form needs
// -DWITH_SUNDER: KEY_FILE has this party's key, and PEER_KEY is the public key of the other one.
#include <cstdlib>
#include <iostream>
#include <memory>

#include "emp-sh2pc/emp-sh2pc.h"
#ifdef WITH_SUNDER
#include "sunder_io.h"
using Channel = sunder::SunderIO;
#else
using Channel = emp::NetIO;
#endif

int main(int count, char **arguments) try {
#ifdef WITH_SUNDER
    const int first = 7;
#else
    const int first = 4;
#endif
    if (count < first) return 2;
    const int party = std::atoi(arguments[1]), port = std::atoi(arguments[2]);
    const auto wealth = static_cast<std::uint32_t>(std::atoi(arguments[3]));
    const char *address = party == emp::ALICE ? nullptr : arguments[first];
#ifdef WITH_SUNDER
    auto options =
        sunder::Options().identity_file(arguments[4]).peer_key(arguments[5]).transport(arguments[6]);
    auto io = std::make_unique<Channel>(address, port, options);
#else
    auto io = std::make_unique<Channel>(address, port, true);
#endif
    emp::setup_semi_honest(io.get(), party);
    emp::UInt32 alice(wealth, emp::ALICE), bob(wealth, emp::BOB);
    const bool is_alice_richer = (alice > bob).reveal<bool>(emp::PUBLIC);
    emp::finalize_semi_honest();
    std::cout << (is_alice_richer ? "party 1 is richer" : "party 1 is not richer") << std::endl;
    io->flush();
} catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
