// The C++ wrapper: every class and function of it, over a connection with both ends here.
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <iostream>

#include "sunder_transport.hpp"

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            std::cerr << __LINE__ << ": " << #condition << std::endl;      \
            std::exit(1);                                                  \
        }                                                                  \
    } while (0)

// The code that a call fails with; 0 if it does not fail.
template <typename Call>
int failure(Call call) {
    try {
        call();
        return SUNDER_OK;
    } catch (const sunder::Error &error) {
        CHECK(error.what()[0] != '\0');
        return error.code();
    }
}

int main() {
    using namespace std::chrono_literals;
    CHECK(!sunder::transports().empty());
    CHECK(failure([] { sunder::Options().transport("pigeon"); }) == SUNDER_USAGE);
    CHECK(failure([] { sunder::Options().identity_file("/does/not/exist"); }) == SUNDER_FAILED);
    CHECK(failure([] { sunder::Options().congestion_control("reno").peer_key("1"); }) == SUNDER_USAGE);

    sunder::Options server;
    sunder::Listener listener("127.0.0.1:0", server);
    auto client = sunder::Options()
                      .transport("tcp")
                      .peer_key(server.public_key())
                      .expect(1000, 1000, 3)
                      .accept_loss()
                      .connect_timeout(10s)
                      .timeout(200ms);
    auto accepting = std::async(std::launch::async, [&] { return listener.accept(); });
    auto one = sunder::connect(listener.address(), client);
    sunder::Connection other = accepting.get();
    CHECK(one.transport() == "tcp");
    CHECK(one.peer_key() == server.public_key());
    CHECK(other.peer_key() == client.public_key());

    one.write("abc");
    one.send(std::string(100000, 'x'));
    one.send("");
    one.flush();
    char bytes[3];
    other.read_exact(bytes, sizeof bytes);
    CHECK(std::string_view(bytes, 3) == "abc");
    CHECK(other.receive() == std::string(100000, 'x'));
    CHECK(other.receive() == "");
    CHECK(one.statistics().bytes_sent == 3 + 8 + 100000 + 8);
    CHECK(failure([&] { one.read(bytes, 1); }) == SUNDER_TIMED_OUT);

    sunder::Connection writer = other.split();
    CHECK(failure([&] { other.write("x"); }) == SUNDER_USAGE);
    CHECK(failure([&] { other.complete(); }) == SUNDER_USAGE);
    writer.complete();
    one.complete();
    writer.write("z");
    writer.finish();
    CHECK(one.read(bytes, sizeof bytes) == 1 && bytes[0] == 'z');
    CHECK(one.read(bytes, sizeof bytes) == 0);
    CHECK(!one.receive());
    CHECK(failure([&] { one.read_exact(bytes, 1); }) == SUNDER_CLOSED);
    one.send("four");
    one.flush();
    CHECK(failure([&] { other.receive(3); }) == SUNDER_TOO_LONG);

    // A moved-from handle is null, which is an error and no crash.
    sunder::Connection moved = std::move(one);
    CHECK(failure([&] { one.flush(); }) == SUNDER_USAGE);
    CHECK(moved.transport() == "tcp");

    sunder::Listener insecure("127.0.0.1:0", sunder::Options().insecure());
    CHECK(failure([&] { insecure.accept(50ms); }) == SUNDER_TIMED_OUT);
    auto plain = sunder::connect(insecure.address(), sunder::Options().insecure().transport("tcp"));
    plain.write("x");
    plain.flush();
    CHECK(insecure.accept(10s).peer_key().empty());

    // A key from memory, and a connection as a socket.
    const std::string secret(32, 'k');
    auto open = sunder::Options().identity(secret.data(), secret.size());
    const std::string key = open.public_key();
    CHECK(key == sunder::Options().identity(secret.data(), 32).public_key());
    CHECK(failure([&] { open.identity(secret.data(), 31); }) == SUNDER_USAGE);
    sunder::Listener listening("127.0.0.1:0", open);
    auto options = sunder::Options().peer_key(key).transport("tcp");
    int socket = sunder::connect(listening.address(), options).into_socket();
    CHECK(write(socket, "by a socket", 11) == 11);
    char received[11];
    listening.accept(10s).read_exact(received, sizeof received);
    CHECK(std::string_view(received, sizeof received) == "by a socket");
    close(socket);
    moved.abort();
    CHECK(failure([&] { moved.send("x"), moved.flush(); }) == SUNDER_CLOSED);
}
