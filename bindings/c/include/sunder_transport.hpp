// sunder_transport.hpp - the C interface with automatic closing and exceptions, in C++17.
//
//     auto options = sunder::Options().identity_file("me.key").peer_key("3d4017c3...12af4660c");
//     auto connection = sunder::connect("192.0.2.7:7700", options);
//     connection.send("hello");
//     std::optional<std::string> answer = connection.receive();
//
// sunder_transport.h documents each function, and which threads may call it. A function that fails
// throws sunder::Error.
#ifndef SUNDER_TRANSPORT_HPP
#define SUNDER_TRANSPORT_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sunder_transport.h"

namespace sunder {

// The error of a failed call.
class Error : public std::runtime_error {
public:
    // The last failure in this thread.
    Error() : std::runtime_error(sunder_error_text()), code_(sunder_error_code()) {}

    // A sunder_code.
    int code() const noexcept { return code_; }

private:
    int code_;
};

namespace detail {

template <typename Integer>
Integer check(Integer result) {
    if (result < 0) throw Error();
    return result;
}

template <typename Handle>
Handle *check(Handle *handle) {
    if (handle == nullptr) throw Error();
    return handle;
}

inline std::uint32_t milliseconds(std::chrono::milliseconds duration) {
    auto count = std::clamp<std::int64_t>(duration.count(), 0, UINT32_MAX);
    return static_cast<std::uint32_t>(count);
}

// A handle of the C interface that frees itself.
template <typename Handle, void (*free)(Handle *)>
struct Free {
    void operator()(Handle *handle) const noexcept { free(handle); }
};
template <typename Handle, void (*free)(Handle *)>
using Owner = std::unique_ptr<Handle, Free<Handle, free>>;

}  // namespace detail

// The names of all transports. "auto", which chooses one of them, is not in the list.
inline std::vector<std::string> transports() {
    std::vector<std::string> names;
    while (const char *name = sunder_transport_name(names.size())) names.emplace_back(name);
    return names;
}

// The options of connections and listeners. Each function returns them, so calls can be chained.
class Options {
public:
    Options() : handle_(detail::check(sunder_options_new())) {}

    Options &transport(const std::string &name) & {
        return with(sunder_options_set_transport(get(), name.c_str()));
    }
    // A secret key of 32 bytes.
    Options &identity(const void *key, std::size_t size) & {
        return with(sunder_options_set_identity(get(), key, size));
    }
    Options &identity_file(const std::string &path) & {
        return with(sunder_options_set_identity_file(get(), path.c_str()));
    }
    Options &peer_key(const std::string &key) & {
        return with(sunder_options_add_peer_key(get(), key.c_str()));
    }
    // Disables encryption and authentication.
    Options &insecure() & { return with(sunder_options_set_insecure(get())); }
    // Allows "udp" on a path that loses packets.
    Options &accept_loss() & { return with(sunder_options_set_accept_loss(get())); }
    Options &congestion_control(const std::string &name) & {
        return with(sunder_options_set_congestion_control(get(), name.c_str()));
    }
    // Bytes sent and received, and how often this side waits for an answer.
    Options &expect(std::uint64_t sent, std::uint64_t received, std::uint32_t rounds) & {
        return with(sunder_options_set_expected_exchange(get(), sent, received, rounds));
    }
    Options &connect_timeout(std::chrono::milliseconds timeout) & {
        return with(sunder_options_set_connect_timeout(get(), detail::milliseconds(timeout)));
    }
    Options &timeout(std::chrono::milliseconds timeout) & {
        return with(sunder_options_set_timeout(get(), detail::milliseconds(timeout)));
    }

    // The same for a temporary, so that options can be built in one expression.
    Options &&transport(const std::string &name) && { return std::move(transport(name)); }
    Options &&identity(const void *key, std::size_t size) && {
        return std::move(identity(key, size));
    }
    Options &&identity_file(const std::string &path) && { return std::move(identity_file(path)); }
    Options &&peer_key(const std::string &key) && { return std::move(peer_key(key)); }
    Options &&insecure() && { return std::move(insecure()); }
    Options &&accept_loss() && { return std::move(accept_loss()); }
    Options &&congestion_control(const std::string &name) && {
        return std::move(congestion_control(name));
    }
    Options &&expect(std::uint64_t sent, std::uint64_t received, std::uint32_t rounds) && {
        return std::move(expect(sent, received, rounds));
    }
    Options &&connect_timeout(std::chrono::milliseconds timeout) && {
        return std::move(connect_timeout(timeout));
    }
    Options &&timeout(std::chrono::milliseconds limit) && { return std::move(timeout(limit)); }

    // This end's public key, which the peer passes to peer_key().
    std::string public_key() const {
        char text[65];
        detail::check(sunder_options_public_key(get(), text, sizeof text));
        return text;
    }

    sunder_options *get() const noexcept { return handle_.get(); }

private:
    Options &with(std::int32_t result) {
        detail::check(result);
        return *this;
    }

    detail::Owner<sunder_options, sunder_options_free> handle_;
};

// One end of a connection, or one direction of it. The destructor closes it.
class Connection {
public:
    // The default limit of receive() for the length of a message.
    static constexpr std::size_t max_message = std::size_t{1} << 30;

    explicit Connection(sunder_connection *handle) : handle_(handle) {}

    // At least one byte, at most `size`; 0 at the end of the stream.
    std::size_t read(void *buffer, std::size_t size) {
        return static_cast<std::size_t>(
            detail::check(sunder_connection_read(get(), buffer, size)));
    }
    void read_exact(void *buffer, std::size_t size) {
        detail::check(sunder_connection_read_exact(get(), buffer, size));
    }
    // Writes all bytes.
    void write(const void *bytes, std::size_t size) {
        detail::check(sunder_connection_write(get(), bytes, size));
    }
    void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
    void flush() { detail::check(sunder_connection_flush(get())); }

    void send(const void *message, std::size_t size) {
        detail::check(sunder_connection_send(get(), message, size));
    }
    void send(std::string_view message) { send(message.data(), message.size()); }
    // The next message; nothing at the end of the stream.
    std::optional<std::string> receive(std::size_t max = max_message) {
        std::uint8_t *message = nullptr;
        std::size_t size = 0;
        if (detail::check(sunder_connection_receive(get(), max, &message, &size)) == 0) return {};
        struct Guard {
            std::uint8_t *message;
            std::size_t size;
            ~Guard() { sunder_message_free(message, size); }
        } guard{message, size};
        return std::string(reinterpret_cast<const char *>(message), size);
    }

    // From now on this connection only reads, and the returned one only writes.
    Connection split() { return Connection(detail::check(sunder_connection_split(get()))); }
    // Ends the stream to the peer, and waits until everything has arrived.
    void finish() { detail::check(sunder_connection_finish(get())); }
    // Reports that the announced exchange is complete: its duration corrects the next choice.
    void complete() { detail::check(sunder_connection_complete(get())); }
    // From any thread: waiting calls of other threads fail with SUNDER_CLOSED.
    void abort() { detail::check(sunder_connection_abort(get())); }
    // A descriptor for poll() and event loops, which the caller closes. This object is then closed.
    int into_socket() && { return detail::check(sunder_connection_into_socket(get())); }

    sunder_statistics statistics() const {
        sunder_statistics statistics{};
        statistics.size = sizeof statistics;
        detail::check(sunder_connection_statistics(get(), &statistics));
        return statistics;
    }
    std::string transport() const { return detail::check(sunder_connection_transport(get())); }
    // Empty if the connection is insecure.
    std::string peer_key() const {
        char text[65];
        detail::check(sunder_connection_peer_key(get(), text, sizeof text));
        return text;
    }

    sunder_connection *get() const noexcept { return handle_.get(); }

private:
    detail::Owner<sunder_connection, sunder_connection_close> handle_;
};

// Accepts connections. The destructor stops listening.
class Listener {
public:
    Listener(const std::string &address, const Options &options)
        : handle_(detail::check(sunder_listen(address.c_str(), options.get()))) {}

    // Waits for connections at a relay, HOST:PORT.
    static Listener via(const std::string &relay, const Options &options) {
        return Listener(detail::check(sunder_listen_via(relay.c_str(), options.get())));
    }

    Connection accept() { return Connection(detail::check(sunder_listener_accept(get()))); }
    Connection accept(std::chrono::milliseconds timeout) {
        const std::uint32_t limit = detail::milliseconds(timeout);
        return Connection(detail::check(sunder_listener_accept_timeout(get(), limit)));
    }
    // ADDRESS:PORT, or TOKEN@HOST:PORT at a relay.
    std::string address() const {
        char text[320];
        detail::check(sunder_listener_address(get(), text, sizeof text));
        return text;
    }

    sunder_listener *get() const noexcept { return handle_.get(); }

private:
    explicit Listener(sunder_listener *handle) : handle_(handle) {}

    detail::Owner<sunder_listener, sunder_listener_close> handle_;
};

inline Connection connect(const std::string &address, const Options &options) {
    return Connection(detail::check(sunder_connect(address.c_str(), options.get())));
}

}  // namespace sunder

#endif
