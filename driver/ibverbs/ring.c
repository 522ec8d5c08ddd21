/* Rings in memory of the daemon, and the bells of both sides. */
#include "weft.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAP_MS 1 /* longest nap after empty polls */
#define SIMULATED_NAP_MS 1000 /* in simulated time the daemon ends a nap, unless it is gone */

static size_t bytes(const struct ring *ring) {
    return sizeof(struct weft_ring) + (size_t)ring->slots * ring->slot_bytes;
}

/* Map a ring and close its file; return 0 or an error number. */
int ring_map(struct ring *ring, int file, uint32_t slots, uint32_t slot_bytes) {
    ring->slots = slots;
    ring->slot_bytes = slot_bytes;
    ring->head = mmap(NULL, bytes(ring), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int error = errno;
    close(file);
    if (ring->head == MAP_FAILED) {
        ring->head = NULL;
        return error;
    }
    madvise(ring->head, bytes(ring), MADV_DONTFORK);
    ring->first = (uint8_t *)(ring->head + 1);
    return 0;
}

void ring_unmap(struct ring *ring) {
    if (ring->head) munmap(ring->head, bytes(ring));
    ring->head = NULL;
}

/* Report the program's simulated time, if it has one, to the daemon, and return it. */
static uint64_t say_time(struct context *c) {
    uint64_t now = weft_clock_ns ? weft_clock_ns() : 0;
    if (now) STORE(c->bell->clock_ns, now);
    return now;
}

/* Announce posted work. The daemon polls memory unless it sleeps; the thread that wakes it clears `asleep` for the
 * others. `posts` is their kind. */
void ring_bell(struct context *c, uint32_t posts) {
    say_time(c);
    __atomic_add_fetch(&c->bell->posted, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->bell->asleep, __ATOMIC_SEQ_CST) & posts
        && __atomic_exchange_n(&c->bell->asleep, 0, __ATOMIC_SEQ_CST)) eventfd_write(c->doorbell, 1);
}

/* Return true if the program's clock is simulated time, which advances only while the program sleeps. */
int time_is_simulated(void) { return weft_clock_ns && weft_clock_ns(); }

/* Yield the processor briefly, or until the daemon's count of reports differs from `notified`; return 0 if the daemon
 * is gone. */
int nap(struct context *c, uint32_t notified) {
    struct pollfd wake = { .fd = c->wake, .events = POLLIN };
    char woken[64];
    int served = 1;
    int simulated = say_time(c) > 0;
    __atomic_add_fetch(&c->bell->waiting, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&c->bell->waited, notified, __ATOMIC_SEQ_CST);
    /* Simulated time advances only when no program has anything to do. */
    if (simulated && __atomic_exchange_n(&c->bell->asleep, 0, __ATOMIC_SEQ_CST)) eventfd_write(c->doorbell, 1);
    if (__atomic_load_n(&c->bell->notified, __ATOMIC_SEQ_CST) == notified
        && poll(&wake, 1, simulated ? SIMULATED_NAP_MS : NAP_MS) > 0)
        served = read(c->wake, woken, sizeof woken) != 0;
    __atomic_sub_fetch(&c->bell->waiting, 1, __ATOMIC_SEQ_CST);
    return served;
}
