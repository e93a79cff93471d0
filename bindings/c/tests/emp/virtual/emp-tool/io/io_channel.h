// Stands in for EMP-toolkit's header of this name, after release 0.3: only what a channel has to
// offer to its base, and what the example uses of it.
#ifndef STAND_IN_IO_CHANNEL_H
#define STAND_IN_IO_CHANNEL_H

#include <cstdint>

namespace emp {

class IOChannel {
public:
    std::uint64_t counter = 0;

    virtual ~IOChannel() = default;
    virtual void send_data_internal(const void *data, std::int64_t nbyte) = 0;
    virtual void recv_data_internal(void *data, std::int64_t nbyte) = 0;
    virtual void flush() {}
    virtual void sync() {}

    void send_data(const void *data, std::int64_t nbyte) {
        send_data_internal(data, nbyte);
        counter += static_cast<std::uint64_t>(nbyte);
    }
    void recv_data(void *data, std::int64_t nbyte) { recv_data_internal(data, nbyte); }
};

}  // namespace emp

#endif
