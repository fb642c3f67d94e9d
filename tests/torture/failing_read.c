// Makes reads of one file fail, or hang, from a byte of it on; for LD_PRELOAD.
//
//   TORTURE_FILE    end of the file's name
//   TORTURE_OFFSET  first byte that can't be read
//   TORTURE_HANG    set: reads there never return

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int is_the_file(int descriptor) {
    const char *name = getenv("TORTURE_FILE");
    char link[64], path[PATH_MAX];
    if (name == NULL || *name == 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    size_t wanted = strlen(name);
    return (size_t)length >= wanted && strcmp(path + length - wanted, name) == 0;
}

// Whether bytes from `offset` on may not be read; hangs where asked to.
static int fails(int descriptor, off_t offset, size_t count) {
    const char *first = getenv("TORTURE_OFFSET");
    if (first == NULL || count == 0 || !is_the_file(descriptor)) return 0;
    if (offset + (off_t)count <= atoll(first)) return 0;
    // Signals do not end it, as in a file system that is gone.
    if (getenv("TORTURE_HANG") != NULL)
        for (;;) nanosleep(&(struct timespec){1000, 0}, NULL);
    errno = EIO;
    return 1;
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

ssize_t read(int descriptor, void *bytes, size_t count) {
    if (fails(descriptor, lseek(descriptor, 0, SEEK_CUR), count)) return -1;
    return ((ssize_t(*)(int, void *, size_t))next("read"))(descriptor, bytes, count);
}

ssize_t readv(int descriptor, const struct iovec *parts, int number) {
    size_t count = 0;
    for (int k = 0; k < number; k++) count += parts[k].iov_len;
    if (fails(descriptor, lseek(descriptor, 0, SEEK_CUR), count)) return -1;
    return ((ssize_t(*)(int, const struct iovec *, int))next("readv"))(descriptor, parts, number);
}

ssize_t pread64(int descriptor, void *bytes, size_t count, off64_t offset) {
    if (fails(descriptor, offset, count)) return -1;
    return ((ssize_t(*)(int, void *, size_t, off64_t))next("pread64"))(descriptor, bytes, count, offset);
}

ssize_t pread(int descriptor, void *bytes, size_t count, off_t offset) {
    return pread64(descriptor, bytes, count, offset);
}
