/* Stands between a program and libc: counts, kills, fails, shortens or records every call that changes a chosen folder.
 * It refuses to touch anything outside that folder, and never sees writes through mmap or stdio. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ROOM (PATH_MAX + 16)

enum { OFF, COUNT, KILL_BEFORE, KILL_AFTER, ERRNO, SHORT };
enum { OP_OPEN = 1, OP_WRITE, OP_SYNC, OP_DATASYNC, OP_SIZE, OP_GROW, OP_RENAME, OP_LINK, OP_UNLINK, OP_MKDIR, OP_RMDIR, OP_MARK };

struct page { uint64_t calls, fired; char op[16]; char path[256]; };
struct head { uint32_t op; int32_t error; uint64_t ino; int64_t number; uint32_t path, other, data; } __attribute__((packed));
struct call { const char *name; int op; uint64_t nth; int64_t number; char path[ROOM]; char other[ROOM]; };

static struct page *page;
static char folder[ROOM];
static size_t folder_length;
static int mode, sticky, error_number, trace = -1;
static uint64_t target;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

static int (*real_open)(const char *, int, ...), (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t), (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_writev)(int, const struct iovec *, int), (*real_pwritev)(int, const struct iovec *, int, off64_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off64_t), (*real_truncate)(const char *, off64_t);
static int (*real_posix_fallocate)(int, off64_t, off64_t), (*real_fallocate)(int, int, off64_t, off64_t);
static int (*real_renameat2)(int, const char *, int, const char *, unsigned), (*real_linkat)(int, const char *, int, const char *, int);
static int (*real_unlinkat)(int, const char *, int), (*real_mkdirat)(int, const char *, mode_t);
static ssize_t (*real_sendfile)(int, int, off64_t *, size_t);
static ssize_t (*real_copy_file_range)(int, off64_t *, int, off64_t *, size_t, unsigned);

#define FIND(name, symbol) *(void **)(&real_##name) = dlsym(RTLD_NEXT, symbol)

__attribute__((constructor)) static void start(void) {
    FIND(open, "open64"); FIND(openat, "openat64"); FIND(write, "write"); FIND(pwrite, "pwrite64");
    FIND(writev, "writev"); FIND(pwritev, "pwritev64"); FIND(fsync, "fsync"); FIND(fdatasync, "fdatasync");
    FIND(ftruncate, "ftruncate64"); FIND(truncate, "truncate64"); FIND(posix_fallocate, "posix_fallocate64");
    FIND(fallocate, "fallocate64"); FIND(renameat2, "renameat2"); FIND(linkat, "linkat"); FIND(unlinkat, "unlinkat");
    FIND(mkdirat, "mkdirat"); FIND(sendfile, "sendfile64"); FIND(copy_file_range, "copy_file_range");
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

EXPORT struct page *shim_page(void) { return page; }
EXPORT void shim_folder(const char *path) {
    snprintf(folder, sizeof folder, "%s", path);
    folder_length = strlen(folder);
}
EXPORT void shim_set(int new_mode, uint64_t n, int number, int keep) {
    memset(page, 0, sizeof *page);
    target = n; error_number = number; sticky = keep; mode = new_mode;
}

static int watching(void) { return (mode != OFF || trace >= 0) && folder_length; }

static int ends_in(const char *path, const char *tail) {
    size_t a = strlen(path), b = strlen(tail);
    return a >= b && !strcmp(path + a - b, tail);
}
/* The -shm file is shared memory: mapped, rebuilt at will, and lost with the power. */
static int inside(const char *path) {
    if (strncmp(path, folder, folder_length) || (path[folder_length] != '/' && path[folder_length])) return 0;
    return !ends_in(path, "-shm") && !ends_in(path, "-shm (deleted)");
}
static int fd_path(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, ROOM - 1);
    if (length < 0) return 0;
    out[length] = 0;
    return 1;
}
static int full_path(int dir, const char *path, char *out) {
    char whole[2 * ROOM], parent[PATH_MAX];
    if (*path == '/') snprintf(whole, sizeof whole, "%s", path);
    else {
        char base[ROOM];
        if (dir == AT_FDCWD ? !getcwd(base, sizeof base) : !fd_path(dir, base)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = 0;
    char *slash = strrchr(whole, '/');
    if (!slash) return 0;
    *slash = 0;
    if (!realpath(*whole ? whole : "/", parent)) return 0;
    snprintf(out, ROOM, "%s/%s", strcmp(parent, "/") ? parent : "", slash + 1);
    return 1;
}
static int on_fd(struct call *call, const char *name, int op, int fd) {
    if (!watching()) return 0;
    int saved = errno;
    call->name = name; call->op = op; call->number = 0; call->other[0] = 0;
    int yes = fd_path(fd, call->path) && inside(call->path);
    errno = saved;
    return yes;
}
static int on_path(struct call *call, const char *name, int op, int dir, const char *path) {
    if (!watching()) return 0;
    int saved = errno;
    call->name = name; call->op = op; call->number = 0; call->other[0] = 0;
    int yes = full_path(dir, path, call->path) && inside(call->path);
    errno = saved;
    return yes;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}
static int hit(uint64_t nth) { return target && (sticky ? nth >= target : nth == target); }
static void fire(struct call *call) {
    if (page->fired++) return;
    snprintf(page->op, sizeof page->op, "%s", call->name);
    snprintf(page->path, sizeof page->path, "%s", call->path + folder_length);
}
/* Returns the mode that strikes this call (KILL_BEFORE never returns), or OFF. */
static int enter(struct call *call) {
    call->nth = __atomic_add_fetch(&page->calls, 1, __ATOMIC_SEQ_CST);
    if (trace >= 0) pthread_mutex_lock(&order);
    if (!hit(call->nth) || mode <= COUNT) return OFF;
    if (mode == SHORT && call->op != OP_WRITE) return OFF;
    fire(call);
    if (mode == KILL_BEFORE) die();
    return mode;
}
static void put_all(const void *data, size_t length) {
    for (const char *at = data; length;) {
        ssize_t done = real_write(trace, at, length);
        if (done <= 0) abort();
        at += done; length -= done;
    }
}
static void note(struct call *call, uint64_t ino, int error, const void *data, size_t length) {
    struct head head = {call->op, error, ino, call->number, strlen(call->path), strlen(call->other), length};
    put_all(&head, sizeof head);
    put_all(call->path, head.path); put_all(call->other, head.other); put_all(data, length);
}
static void leave(struct call *call, int fd, int error, const void *data, size_t length) {
    int saved = errno;
    if (trace >= 0) {
        struct stat64 info = {0};
        if (fd >= 0) fstat64(fd, &info);
        note(call, info.st_ino, error, data, length);
        pthread_mutex_unlock(&order);
    }
    if (mode == KILL_AFTER && hit(call->nth)) die();
    errno = saved;
}
static int fail(struct call *call, int fd) {
    leave(call, fd, error_number, NULL, 0);
    errno = error_number;
    return -1;
}
#define STRIKE(call, fd) do { if (enter(call) == ERRNO) return fail(call, fd); } while (0)

EXPORT void shim_record(const char *path) {
    trace = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
}
EXPORT void shim_mark(const char *label) {
    if (trace < 0) return;
    struct call call = {.op = OP_MARK};
    pthread_mutex_lock(&order);
    note(&call, 0, 0, label, strlen(label));
    pthread_mutex_unlock(&order);
}

static int64_t position(int fd) {
    struct stat64 info;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && flags & O_APPEND && !fstat64(fd, &info)) return info.st_size;
    return lseek64(fd, 0, SEEK_CUR);
}
static ssize_t put(struct call *call, int fd, const void *data, size_t length, off64_t at) {
    call->number = at >= 0 ? at : position(fd);
    int strike = enter(call);
    if (strike == ERRNO) return fail(call, fd);
    if (strike == SHORT && length > 1) length /= 2;
    ssize_t done = at >= 0 ? real_pwrite(fd, data, length, at) : real_write(fd, data, length);
    leave(call, fd, done < 0 ? errno : 0, data, done < 0 ? 0 : done);
    return done;
}
static ssize_t gather(struct call *call, int fd, const struct iovec *parts, int count, off64_t at) {
    size_t length = 0, used = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    char *data = malloc(length ? length : 1);
    for (int i = 0; i < count; used += parts[i++].iov_len) memcpy(data + used, parts[i].iov_base, parts[i].iov_len);
    ssize_t done = put(call, fd, data, length, at);
    free(data);
    return done;
}

EXPORT ssize_t write(int fd, const void *data, size_t length) {
    struct call call;
    return on_fd(&call, "write", OP_WRITE, fd) ? put(&call, fd, data, length, -1) : real_write(fd, data, length);
}
EXPORT ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    struct call call;
    return on_fd(&call, "pwrite", OP_WRITE, fd) ? put(&call, fd, data, length, at) : real_pwrite(fd, data, length, at);
}
EXPORT ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return pwrite64(fd, data, length, at); }
EXPORT ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct call call;
    return on_fd(&call, "writev", OP_WRITE, fd) ? gather(&call, fd, parts, count, -1) : real_writev(fd, parts, count);
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    struct call call;
    return on_fd(&call, "pwritev", OP_WRITE, fd) ? gather(&call, fd, parts, count, at) : real_pwritev(fd, parts, count, at);
}
EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64(fd, parts, count, at); }
/* Kernel-side copies carry no bytes to record, so the caller is sent to its read-and-write path. */
EXPORT ssize_t sendfile64(int to, int from, off64_t *at, size_t length) {
    struct call call;
    if (on_fd(&call, "sendfile", OP_WRITE, to)) { errno = EINVAL; return -1; }
    return real_sendfile(to, from, at, length);
}
EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t length) { return sendfile64(to, from, (off64_t *)at, length); }
EXPORT ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t length, unsigned flags) {
    struct call call;
    if (on_fd(&call, "copy_file_range", OP_WRITE, to)) { errno = EINVAL; return -1; }
    return real_copy_file_range(from, a, to, b, length, flags);
}

#define FINISH(call, fd, result) do { leave(call, fd, (result) ? errno : 0, NULL, 0); return result; } while (0)

EXPORT int fsync(int fd) {
    struct call call;
    if (!on_fd(&call, "fsync", OP_SYNC, fd)) return real_fsync(fd);
    STRIKE(&call, fd);
    int result = real_fsync(fd);
    FINISH(&call, fd, result);
}
EXPORT int fdatasync(int fd) {
    struct call call;
    if (!on_fd(&call, "fdatasync", OP_DATASYNC, fd)) return real_fdatasync(fd);
    STRIKE(&call, fd);
    int result = real_fdatasync(fd);
    FINISH(&call, fd, result);
}
EXPORT int ftruncate64(int fd, off64_t size) {
    struct call call;
    if (!on_fd(&call, "ftruncate", OP_SIZE, fd)) return real_ftruncate(fd, size);
    call.number = size;
    STRIKE(&call, fd);
    int result = real_ftruncate(fd, size);
    FINISH(&call, fd, result);
}
EXPORT int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
EXPORT int truncate64(const char *path, off64_t size) {
    struct call call;
    if (!on_path(&call, "truncate", OP_SIZE, AT_FDCWD, path)) return real_truncate(path, size);
    call.number = size;
    STRIKE(&call, -1);
    int result = real_truncate(path, size);
    FINISH(&call, -1, result);
}
EXPORT int truncate(const char *path, off_t size) { return truncate64(path, size); }
EXPORT int posix_fallocate64(int fd, off64_t at, off64_t length) {
    struct call call;
    if (!on_fd(&call, "posix_fallocate", OP_GROW, fd)) return real_posix_fallocate(fd, at, length);
    call.number = at + length;
    if (enter(&call) == ERRNO) { fail(&call, fd); return error_number; }
    int result = real_posix_fallocate(fd, at, length);
    leave(&call, fd, result, NULL, 0);
    return result;
}
EXPORT int posix_fallocate(int fd, off_t at, off_t length) { return posix_fallocate64(fd, at, length); }
EXPORT int fallocate64(int fd, int how, off64_t at, off64_t length) {
    struct call call;
    if (!on_fd(&call, "fallocate", OP_GROW, fd)) return real_fallocate(fd, how, at, length);
    if (how) { errno = EOPNOTSUPP; return -1; }
    call.number = at + length;
    STRIKE(&call, fd);
    int result = real_fallocate(fd, how, at, length);
    FINISH(&call, fd, result);
}
EXPORT int fallocate(int fd, int how, off_t at, off_t length) { return fallocate64(fd, how, at, length); }

static int changes(int flags) { return flags & (O_CREAT | O_TRUNC) || (flags & O_ACCMODE) != O_RDONLY; }
static int open_file(int dir, const char *path, int flags, mode_t bits) {
    struct call call;
    if (!changes(flags) || !on_path(&call, "open", OP_OPEN, dir, path)) return real_openat(dir, path, flags, bits);
    call.number = flags & O_TRUNC;
    STRIKE(&call, -1);
    int fd = real_openat(dir, path, flags, bits);
    leave(&call, fd, fd < 0 ? errno : 0, NULL, 0);
    return fd;
}
static mode_t bits_of(int flags, va_list list) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, mode_t) : 0;
}
#define BITS(flags) va_list list; va_start(list, flags); mode_t bits = bits_of(flags, list); va_end(list)

EXPORT int open64(const char *path, int flags, ...) { BITS(flags); return open_file(AT_FDCWD, path, flags, bits); }
EXPORT int open(const char *path, int flags, ...) { BITS(flags); return open_file(AT_FDCWD, path, flags, bits); }
EXPORT int openat64(int dir, const char *path, int flags, ...) { BITS(flags); return open_file(dir, path, flags, bits); }
EXPORT int openat(int dir, const char *path, int flags, ...) { BITS(flags); return open_file(dir, path, flags, bits); }
EXPORT int __open_2(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int dir, const char *path, int flags) { return open_file(dir, path, flags, 0); }
EXPORT int __openat64_2(int dir, const char *path, int flags) { return open_file(dir, path, flags, 0); }
EXPORT int creat64(const char *path, mode_t bits) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, bits); }
EXPORT int creat(const char *path, mode_t bits) { return creat64(path, bits); }

static int other_path(struct call *call, int dir, const char *path) {
    int saved = errno;
    if (!full_path(dir, path, call->other)) snprintf(call->other, ROOM, "%s", path);
    errno = saved;
    return 1;
}
EXPORT int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    struct call call;
    if (!on_path(&call, "rename", OP_RENAME, a, from)) return real_renameat2(a, from, b, to, flags);
    other_path(&call, b, to);
    STRIKE(&call, -1);
    int result = real_renameat2(a, from, b, to, flags);
    FINISH(&call, -1, result);
}
EXPORT int renameat(int a, const char *from, int b, const char *to) { return renameat2(a, from, b, to, 0); }
EXPORT int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int linkat(int a, const char *from, int b, const char *to, int flags) {
    struct call call;
    if (!on_path(&call, "link", OP_LINK, a, from)) return real_linkat(a, from, b, to, flags);
    other_path(&call, b, to);
    STRIKE(&call, -1);
    int result = real_linkat(a, from, b, to, flags);
    FINISH(&call, -1, result);
}
EXPORT int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int unlinkat(int dir, const char *path, int flags) {
    struct call call;
    int folder_too = flags & AT_REMOVEDIR;
    if (!on_path(&call, folder_too ? "rmdir" : "unlink", folder_too ? OP_RMDIR : OP_UNLINK, dir, path))
        return real_unlinkat(dir, path, flags);
    STRIKE(&call, -1);
    int result = real_unlinkat(dir, path, flags);
    FINISH(&call, -1, result);
}
EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
EXPORT int mkdirat(int dir, const char *path, mode_t bits) {
    struct call call;
    if (!on_path(&call, "mkdir", OP_MKDIR, dir, path)) return real_mkdirat(dir, path, bits);
    STRIKE(&call, -1);
    int result = real_mkdirat(dir, path, bits);
    FINISH(&call, -1, result);
}
EXPORT int mkdir(const char *path, mode_t bits) { return mkdirat(AT_FDCWD, path, bits); }
