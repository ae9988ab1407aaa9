/* A disk that is full, for the process it is loaded into (LD_PRELOAD): of the calls that may need room on a disk, those
 * from number FULL_FROM on fail with ENOSPC, until FULL_FOR of them have failed. The first of them, if it is a write,
 * still writes half: that is how a real disk fills. Only the process with RANK = FULL_RANK counts, if that is set.
 * With FULL_READ_ONLY the disk is read-only instead: EROFS, and nothing is written by halves. At its end that process writes the number of its calls to the file FULL_COUNT, if that is set. Calls that touch neither a regular
 * file nor a folder (pipes, sockets, /dev, /proc) do not count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long calls;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int counts(void) {
    const char *rank = getenv("RANK"), *only = getenv("FULL_RANK");
    return !only || (rank && strcmp(rank, only) == 0);
}

/* 0: there is room; 1: the disk has just become full; 2: it is full. */
static int full(void) {
    if (!counts()) return 0;
    long past = atomic_fetch_add(&calls, 1) - number("FULL_FROM", 0);
    if (past < 0 || past >= number("FULL_FOR", 1L << 40)) return 0;
    return past == 0 ? 1 : 2;
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FULL_COUNT");
    if (!path || !counts()) return;
    long total = calls;
    FILE *out = fopen(path, "w");
    if (out) {
        fprintf(out, "%ld", total);
        fclose(out);
    }
}

static int is_file(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

static int error(void) { return getenv("FULL_READ_ONLY") ? EROFS : ENOSPC; }

static int fails(void) {
    if (!full()) return 0;
    errno = error();
    return 1;
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t length) {
    int room = is_file(fd) ? full() : 0;
    if (room == 2 || (room == 1 && (length < 2 || error() == EROFS))) {
        errno = error();
        return -1;
    }
    return REAL(write)(fd, bytes, room == 1 ? length / 2 : length);
}

int fsync(int fd) { return is_file(fd) && fails() ? -1 : REAL(fsync)(fd); }

int mkdir(const char *path, mode_t mode) { return fails() ? -1 : REAL(mkdir)(path, mode); }

int rename(const char *from, const char *to) { return fails() ? -1 : REAL(rename)(from, to); }

static int creates(const char *path, int flags) {
    return (flags & O_CREAT) && strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6);
}

#define OPEN(name)                                                  \
    int name(const char *path, int flags, ...) {                    \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;   \
        va_end(rest);                                               \
        if (creates(path, flags) && fails()) return -1;             \
        return REAL(name)(path, flags, mode);                       \
    }

OPEN(open)
OPEN(open64)
