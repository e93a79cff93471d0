// A program with the original library: sends or receives a stream of pseudorandom bytes.
//
// usage: peer send HOST PORT BYTES | peer receive PORT BYTES
// The stream is x = 1, x = 6364136223846793005 x + 1442695040888963407 mod 2^64, of each the highest
// byte, 1000003 of them again and again. `receive` prints "listening PORT", `send` "connected
// SECONDS", and both print {"complete_s": SECONDS} at the end.
#include <udt/udt.h>

#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static void check(bool is_good, const char *what) {
    if (!is_good) {
        fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
        exit(1);
    }
}

static std::vector<char> period() {
    std::vector<char> bytes(1000003);
    uint64_t x = 1;
    for (char &byte : bytes) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        byte = static_cast<char>(x >> 56);
    }
    return bytes;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    bool sends = std::string(argv[1]) == "send";
    const char *host = sends ? argv[2] : "0.0.0.0";
    int port = atoi(argv[sends ? 3 : 2]);
    long total = atol(argv[sends ? 4 : 3]);
    UDT::startup();
    UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    int packets = 200000, bytes = 256 << 20;
    UDT::setsockopt(socket, 0, UDT_FC, &packets, sizeof packets);
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &bytes, sizeof bytes);
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &bytes, sizeof bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host, &address.sin_addr);
    using clock = std::chrono::steady_clock;
    auto seconds_since = [](clock::time_point begin) {
        return std::chrono::duration<double>(clock::now() - begin).count();
    };
    auto begin = clock::now();
    if (sends) {
        check(UDT::ERROR != UDT::connect(socket, (sockaddr *)&address, sizeof address), "connect");
        printf("connected %.4f\n", seconds_since(begin));
    } else {
        check(UDT::ERROR != UDT::bind(socket, (sockaddr *)&address, sizeof address), "bind");
        int length = sizeof address;
        UDT::getsockname(socket, (sockaddr *)&address, &length);
        check(UDT::ERROR != UDT::listen(socket, 1), "listen");
        printf("listening %d\n", ntohs(address.sin_port));
        fflush(stdout);
        UDTSOCKET listener = socket;
        socket = UDT::accept(listener, (sockaddr *)&address, &length);
        check(socket != UDT::INVALID_SOCK, "accept");
    }
    begin = clock::now();
    const std::vector<char> stream = period();
    std::vector<char> buffer(1 << 18);
    for (long done = 0; done < total;) {
        long at = done % stream.size();
        int want = static_cast<int>(std::min<long>(stream.size() - at, total - done)), moved = 0;
        if (sends) {
            moved = UDT::send(socket, stream.data() + at, want, 0);
            check(moved != UDT::ERROR, "send");
        } else {
            moved = UDT::recv(socket, buffer.data(), std::min<int>(want, buffer.size()), 0);
            check(moved != UDT::ERROR, "recv");
            if (memcmp(buffer.data(), stream.data() + at, moved) != 0) {
                fprintf(stderr, "other bytes at %ld\n", done);
                return 1;
            }
        }
        done += moved;
    }
    if (sends) {
        // The answer says that everything has arrived.
        char answer;
        check(UDT::recv(socket, &answer, 1, 0) == 1, "the answer");
    } else {
        check(UDT::send(socket, "!", 1, 0) == 1, "the answer");
    }
    printf("{\"complete_s\": %.4f}\n", seconds_since(begin));
    fflush(stdout);
    UDT::close(socket);
    UDT::cleanup();
}
