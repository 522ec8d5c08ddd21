/* Speed of this machine without RDMA: speed SECONDS prints the rates of memcpy, of copies from one process to another
 * through a third one, and of TCP over loopback with 64 KiB, in MB/s, and the median round trip of 8 bytes over TCP in
 * nanoseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64 << 10, TRIPS = 20000 };
static char from[SIZE], to[SIZE];

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void all(int file, char *data, size_t size, int writes) {
    while (size) {
        ssize_t n = writes ? write(file, data, size) : read(file, data, size);
        check(n > 0, "TCP");
        data += n;
        size -= (size_t)n;
    }
}

static double memcpy_rate(double seconds) {
    double start = now_s(), bytes = 0;
    while (now_s() - start < seconds)
        for (int n = 0; n < 100; n++, bytes += SIZE) {
            memcpy(to, from, SIZE);
            __asm__ volatile("" ::: "memory");
        }
    return bytes / (now_s() - start) / 1e6;
}

/* Return a process whose memory has the same contents at the same addresses. */
static pid_t twin(void) {
    int ready[2];
    check(!pipe(ready), "pipe");
    pid_t process = fork();
    check(process >= 0, "fork");
    if (!process) {
        memset(from, 1, SIZE);
        memset(to, 1, SIZE);
        check(write(ready[1], "", 1) == 1, "pipe");
        for (;;) pause();
    }
    check(read(ready[0], to, 1) == 1, "pipe");
    return process;
}

/* The kernel copies each byte twice, as for messages between programs whose memory is private. */
static double kernel_rate(double seconds) {
    pid_t sender = twin(), receiver = twin();
    struct iovec own = { to, SIZE }, source = { from, SIZE }, target = { to, SIZE };
    double start = now_s(), bytes = 0;
    for (; now_s() - start < seconds; bytes += SIZE)
        check(process_vm_readv(sender, &own, 1, &source, 1, 0) == SIZE
              && process_vm_writev(receiver, &own, 1, &target, 1, 0) == SIZE, "process_vm_readv");
    double rate = bytes / (now_s() - start) / 1e6;
    kill(sender, SIGKILL);
    kill(receiver, SIGKILL);
    waitpid(sender, NULL, 0);
    waitpid(receiver, NULL, 0);
    return rate;
}

static int by_number(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    check(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 1)
          && !getsockname(listener, (struct sockaddr *)&address, &size), "listen");
    pid_t child = fork();
    check(child >= 0, "fork");
    int file = child ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
    check(child || !connect(file, (struct sockaddr *)&address, size), "connect");
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!child) {
        for (int n = 0; n < TRIPS; n++) {
            all(file, to, 8, 0);
            all(file, to, 8, 1);
        }
        while (read(file, to, SIZE) > 0) continue;
        return 0;
    }
    static double trips[TRIPS];
    for (int n = 0; n < TRIPS; n++) {
        double start = now_s();
        all(file, from, 8, 1);
        all(file, from, 8, 0);
        trips[n] = now_s() - start;
    }
    qsort(trips, TRIPS, sizeof *trips, by_number);
    double start = now_s(), bytes = 0;
    for (; now_s() - start < seconds; bytes += SIZE) all(file, from, SIZE, 1);
    double tcp = bytes / (now_s() - start) / 1e6;
    close(file);
    waitpid(child, NULL, 0);
    printf("memcpy %.0f kernel %.0f tcp %.0f trip %.0f\n", memcpy_rate(seconds), kernel_rate(seconds), tcp,
           trips[TRIPS / 2] * 1e9);
    return 0;
}
