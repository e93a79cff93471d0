// Stands in for EMP-toolkit's header of this name, releases up to 0.3: only what a channel has to
// offer to its base, and what the example uses of it.
#ifndef STAND_IN_IO_CHANNEL_H
#define STAND_IN_IO_CHANNEL_H

#include <cstddef>
#include <cstdint>

namespace emp {

template <typename T>
class IOChannel {
public:
    std::uint64_t counter = 0;

    void send_data(const void *data, std::size_t nbyte) {
        static_cast<T *>(this)->send_data_internal(data, nbyte);
        counter += nbyte;
    }
    void recv_data(void *data, std::size_t nbyte) {
        static_cast<T *>(this)->recv_data_internal(data, nbyte);
    }
};

}  // namespace emp

#endif
