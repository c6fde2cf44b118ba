/* Calls by which the kernel moves bytes into or out of a program's memory. It does not fault on our behalf: where a page
   is closed it refuses (EFAULT). So the memory is opened before the call, and what the call then moved is noted.

   Of the kernel's calls with pointers these move data that a program may keep in pinned memory: read, pread, readv, preadv,
   preadv2, recv, recvfrom, recvmsg, recvmmsg, mq_receive, getrandom and process_vm_readv write it; write, pwrite, writev,
   pwritev, pwritev2, send, sendto, sendmsg, sendmmsg, mq_send, process_vm_writev and vmsplice read it. stdio makes its calls
   within libc, so fread and fwrite stand here too. All others are given names, sizes, sets or addresses, which live
   elsewhere, or move between files alone (sendfile, splice, copy_file_range). io_uring and Linux AIO touch memory when they
   like: while pages are closed they end the run, if libc makes the call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "virtual.h"

enum { READS = 0, WRITES = 1 }; /* what the call does to the program's memory */
static void open_all(const struct iovec *parts, size_t count) {
    for (size_t i = 0; i < count; i++) vg_open_range(parts[i].iov_base, parts[i].iov_len);
}
/* size: how many bytes the call moved, less than 0 if it failed; the parts are filled in order */
static ssize_t noted(const struct iovec *parts, size_t count, ssize_t size, int is_write) {
    size_t left = size > 0 ? (size_t)size : 0;
    for (size_t i = 0; i < count && left; i++) {
        size_t part = left < parts[i].iov_len ? left : parts[i].iov_len;
        vg_note_range(parts[i].iov_base, part, is_write);
        left -= part;
    }
    return size;
}
#define REAL(name) static __typeof__(name) *real; if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)
#define AROUND(call, parts, count, is_write) \
    if (!vg_has_guards()) return call; \
    open_all(parts, (size_t)(count)); \
    return noted(parts, (size_t)(count), call, is_write)
#define ONE(b, n) struct iovec one = {(void *)(b), n}

ssize_t read(int f, void *b, size_t n) { REAL(read); ONE(b, n); AROUND(real(f, b, n), &one, 1, WRITES); }
ssize_t write(int f, const void *b, size_t n) { REAL(write); ONE(b, n); AROUND(real(f, b, n), &one, 1, READS); }
#define AT(reads, writes, offset) \
    ssize_t reads(int f, void *b, size_t n, offset o) { REAL(reads); ONE(b, n); AROUND(real(f, b, n, o), &one, 1, WRITES); } \
    ssize_t writes(int f, const void *b, size_t n, offset o) { REAL(writes); ONE(b, n); AROUND(real(f, b, n, o), &one, 1, READS); }
AT(pread, pwrite, off_t)
AT(pread64, pwrite64, off64_t)
ssize_t readv(int f, const struct iovec *v, int n) { REAL(readv); AROUND(real(f, v, n), v, n, WRITES); }
ssize_t writev(int f, const struct iovec *v, int n) { REAL(writev); AROUND(real(f, v, n), v, n, READS); }
#define PARTS_AT(name, offset, is_write) \
    ssize_t name(int f, const struct iovec *v, int n, offset o) { REAL(name); AROUND(real(f, v, n, o), v, n, is_write); }
PARTS_AT(preadv, off_t, WRITES)
PARTS_AT(preadv64, off64_t, WRITES)
PARTS_AT(pwritev, off_t, READS)
PARTS_AT(pwritev64, off64_t, READS)
#define PARTS_HOW(name, offset, is_write) \
    ssize_t name(int f, const struct iovec *v, int n, offset o, int g) { REAL(name); AROUND(real(f, v, n, o, g), v, n, is_write); }
PARTS_HOW(preadv2, off_t, WRITES)
PARTS_HOW(preadv64v2, off64_t, WRITES)
PARTS_HOW(pwritev2, off_t, READS)
PARTS_HOW(pwritev64v2, off64_t, READS)

/* ---- sockets and queues */
ssize_t recv(int f, void *b, size_t n, int g) { REAL(recv); ONE(b, n); AROUND(real(f, b, n, g), &one, 1, WRITES); }
ssize_t send(int f, const void *b, size_t n, int g) { REAL(send); ONE(b, n); AROUND(real(f, b, n, g), &one, 1, READS); }
ssize_t recvfrom(int f, void *b, size_t n, int g, struct sockaddr *a, socklen_t *l) {
    REAL(recvfrom);
    ONE(b, n);
    AROUND(real(f, b, n, g, a, l), &one, 1, WRITES);
}
ssize_t sendto(int f, const void *b, size_t n, int g, const struct sockaddr *a, socklen_t l) {
    REAL(sendto);
    ONE(b, n);
    AROUND(real(f, b, n, g, a, l), &one, 1, READS);
}
ssize_t recvmsg(int f, struct msghdr *m, int g) { REAL(recvmsg); AROUND(real(f, m, g), m->msg_iov, m->msg_iovlen, WRITES); }
ssize_t sendmsg(int f, const struct msghdr *m, int g) { REAL(sendmsg); AROUND(real(f, m, g), m->msg_iov, m->msg_iovlen, READS); }
static void open_messages(struct mmsghdr *m, unsigned n) {
    for (unsigned i = 0; i < n; i++) open_all(m[i].msg_hdr.msg_iov, m[i].msg_hdr.msg_iovlen);
}
static int noted_messages(struct mmsghdr *m, int n, int is_write) {
    for (int i = 0; i < n; i++) noted(m[i].msg_hdr.msg_iov, m[i].msg_hdr.msg_iovlen, m[i].msg_len, is_write);
    return n;
}
int recvmmsg(int f, struct mmsghdr *m, unsigned n, int g, struct timespec *t) {
    REAL(recvmmsg);
    open_messages(m, n);
    return noted_messages(m, real(f, m, n, g, t), WRITES);
}
int sendmmsg(int f, struct mmsghdr *m, unsigned n, int g) {
    REAL(sendmmsg);
    open_messages(m, n);
    return noted_messages(m, real(f, m, n, g), READS);
}
ssize_t mq_receive(mqd_t q, char *b, size_t n, unsigned *p) { REAL(mq_receive); ONE(b, n); AROUND(real(q, b, n, p), &one, 1, WRITES); }
int mq_send(mqd_t q, const char *b, size_t n, unsigned p) {
    REAL(mq_send);
    vg_open_range(b, n);
    vg_note_range(b, n, READS);
    return real(q, b, n, p);
}

/* ---- stdio, pipes, other processes, random bytes */
size_t fread(void *b, size_t size, size_t n, FILE *f) {
    REAL(fread);
    ONE(b, size * n);
    if (!vg_has_guards()) return real(b, size, n, f);
    open_all(&one, 1);
    size_t done = real(b, size, n, f);
    noted(&one, 1, (ssize_t)(done * size), WRITES);
    return done;
}
size_t fwrite(const void *b, size_t size, size_t n, FILE *f) {
    REAL(fwrite);
    ONE(b, size * n);
    if (!vg_has_guards()) return real(b, size, n, f);
    open_all(&one, 1);
    size_t done = real(b, size, n, f);
    noted(&one, 1, (ssize_t)(done * size), READS);
    return done;
}
ssize_t vmsplice(int f, const struct iovec *v, size_t n, unsigned g) {
    REAL(vmsplice);
    int is_write = (fcntl(f, F_GETFL) & O_ACCMODE) == O_RDONLY; /* out of a pipe, into memory */
    AROUND(real(f, v, n, g), v, n, is_write);
}
/* Of a process itself both sides are its memory. */
static ssize_t between(ssize_t size, pid_t p, const struct iovec *mine, size_t m, const struct iovec *theirs, size_t n, int is_read) {
    noted(mine, m, size, is_read ? WRITES : READS);
    return p == getpid() ? noted(theirs, n, size, is_read ? READS : WRITES) : size;
}
ssize_t process_vm_readv(pid_t p, const struct iovec *a, unsigned long m, const struct iovec *b, unsigned long n, unsigned long g) {
    REAL(process_vm_readv);
    open_all(a, m);
    if (p == getpid()) open_all(b, n);
    return between(real(p, a, m, b, n, g), p, a, m, b, n, 1);
}
ssize_t process_vm_writev(pid_t p, const struct iovec *a, unsigned long m, const struct iovec *b, unsigned long n, unsigned long g) {
    REAL(process_vm_writev);
    open_all(a, m);
    if (p == getpid()) open_all(b, n);
    return between(real(p, a, m, b, n, g), p, a, m, b, n, 0);
}
ssize_t getrandom(void *b, size_t n, unsigned g) { REAL(getrandom); ONE(b, n); AROUND(real(b, n, g), &one, 1, WRITES); }

/* ---- by number: what stands above goes there */
long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    switch (vg_has_guards() ? number : -1) {
    case SYS_read: return read((int)a[0], (void *)a[1], (size_t)a[2]);
    case SYS_write: return write((int)a[0], (void *)a[1], (size_t)a[2]);
    case SYS_readv: return readv((int)a[0], (void *)a[1], (int)a[2]);
    case SYS_writev: return writev((int)a[0], (void *)a[1], (int)a[2]);
    case SYS_pread64: return pread64((int)a[0], (void *)a[1], (size_t)a[2], a[3]);
    case SYS_pwrite64: return pwrite64((int)a[0], (void *)a[1], (size_t)a[2], a[3]);
    case SYS_getrandom: return getrandom((void *)a[0], (size_t)a[1], (unsigned)a[2]);
    case SYS_io_submit: return vg_unmodelled("io_submit (the kernel touches pinned memory later)");
    case SYS_io_uring_enter: return vg_unmodelled("io_uring_enter (the kernel touches pinned memory later)");
    default: return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
}
