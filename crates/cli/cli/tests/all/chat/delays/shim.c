/* Loaded into a member's process: a disk that is slow while the file SHIM_SLOW exists, and a delay
 * of some 30 microseconds before each transmission while SHIM_DELAYED does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int exists(const char *name)
{
    const char *path = getenv(name);
    return path && access(path, F_OK) == 0;
}

static void slow(void)
{
    struct timespec wait = {0, 50 * 1000 * 1000};
    if (exists("SHIM_SLOW"))
        nanosleep(&wait, NULL);
}

int fsync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    slow();
    return next(fd);
}

int fdatasync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    slow();
    return next(fd);
}

static void delay(int fd)
{
    struct stat it;
    struct timespec began, now;
    if (fstat(fd, &it) || !S_ISSOCK(it.st_mode) || !exists("SHIM_DELAYED"))
        return;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - began.tv_sec) * 1000000000L + now.tv_nsec - began.tv_nsec < 30000);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    delay(fd);
    return next(fd, bytes, len, flags);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    ssize_t (*next)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    delay(fd);
    return next(fd, bytes, len);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    ssize_t (*next)(int, const struct iovec *, int) =
        (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    delay(fd);
    return next(fd, parts, count);
}
