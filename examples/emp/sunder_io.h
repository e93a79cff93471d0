// sunder_io.h - programs of EMP-toolkit over any transport of Sunder.
//
// Where a program has
//
//     emp::NetIO io(party == emp::ALICE ? nullptr : "192.0.2.7", 12345);
//
// it takes instead
//
//     sunder::SunderIO io(party == emp::ALICE ? nullptr : "192.0.2.7", 12345,
//                         sunder::Options().identity_file("me.key").peer_key(key));
//
// Templates over the channel, as emp::setup_semi_honest(&io, party) or emp::IKNP<sunder::SunderIO>,
// then use it as they use NetIO. It works with both forms of emp::IOChannel: the template over the
// channel (releases up to 0.3) and the class with virtual functions (since). As with NetIO, one
// thread at a time uses a channel; each thread has its own. Failures are sunder::Error.
#ifndef SUNDER_IO_H
#define SUNDER_IO_H

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "emp-tool/io/io_channel.h"
#include "sunder_transport.hpp"

namespace sunder {

namespace detail {

// emp::IOChannel is a class, or a template over the class that derives from it. Of these two only
// one accepts it; the result is a pointer to the base of `Channel`.
template <typename Channel, typename Base>
Base *emp_base();
template <typename Channel, template <typename> class Base>
Base<Channel> *emp_base();

}  // namespace detail

class SunderIO
    : public std::remove_pointer_t<decltype(detail::emp_base<SunderIO, ::emp::IOChannel>())> {
public:
    // As NetIO: without an address this end listens at the port, at all of the host's addresses, and
    // accepts one connection.
    SunderIO(const char *address, int port, const Options &options)
        : is_server(address == nullptr),
          connection_(address == nullptr
                          ? Listener("0.0.0.0:" + std::to_string(port), options).accept()
                          : connect(address + (":" + std::to_string(port)), options)) {}

    // Over a connection that there is already. Who accepted it is the server.
    SunderIO(Connection connection, bool is_server)
        : is_server(is_server), connection_(std::move(connection)) {}

    const bool is_server;

    // One byte each way: both ends are there.
    void sync() {
        char byte = 0;
        if (is_server) {
            send_data_internal(&byte, 1);
            recv_data_internal(&byte, 1);
        } else {
            recv_data_internal(&byte, 1);
            send_data_internal(&byte, 1);
            flush();
        }
    }

    void flush() { connection_.flush(); }

    // What IOChannel calls. A receive flushes what was sent.
    void send_data_internal(const void *data, std::int64_t size) {
        connection_.write(data, bytes(size));
    }
    void recv_data_internal(void *data, std::int64_t size) {
        connection_.read_exact(data, bytes(size));
    }

    // For its statistics, or to end it: finish() returns when the peer has received everything.
    Connection &connection() { return connection_; }

private:
    static std::size_t bytes(std::int64_t size) {
        if (size < 0) throw std::invalid_argument("a channel cannot carry a negative length");
        return static_cast<std::size_t>(size);
    }

    Connection connection_;
};

}  // namespace sunder

#endif
