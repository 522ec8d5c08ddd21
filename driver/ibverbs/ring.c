/* Rings in memory that the daemon made, and the bells on both sides. */
#include "weft.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAP_MS 1 /* at most, for who polls in vain */
#define SIMULATED_NAP_MS 1000 /* in simulated time it is the daemon that ends a nap, or it is gone */

static size_t bytes(const struct ring *ring) {
    return sizeof(struct weft_ring) + (size_t)ring->slots * ring->slot_bytes;
}

/* Map a ring and close its file; 0 or an error number. */
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

/* The program's simulated time, if it has that: the daemon learns it. */
static uint64_t say_time(struct context *c) {
    uint64_t now = weft_clock_ns ? weft_clock_ns() : 0;
    if (now) STORE(c->bell->clock_ns, now);
    return now;
}

/* Something was posted: the daemon looks at memory unless it sleeps. Who wakes it says that it need not be again. */
void ring_bell(struct context *c) {
    say_time(c);
    __atomic_add_fetch(&c->bell->posted, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->bell->asleep, __ATOMIC_SEQ_CST)
        && __atomic_exchange_n(&c->bell->asleep, 0, __ATOMIC_SEQ_CST)) eventfd_write(c->doorbell, 1);
}

/* Let others have the processor until the daemon has told more than `told`, for a moment; 0 if there is no daemon any
 * more. */
int nap(struct context *c, uint32_t told) {
    struct pollfd wake = { .fd = c->wake, .events = POLLIN };
    char woken[64];
    int served = 1;
    int simulated = say_time(c) > 0;
    __atomic_add_fetch(&c->bell->waiting, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&c->bell->waited, told, __ATOMIC_SEQ_CST);
    /* Simulated time goes on when nobody has anything to do any more. */
    if (simulated && __atomic_exchange_n(&c->bell->asleep, 0, __ATOMIC_SEQ_CST)) eventfd_write(c->doorbell, 1);
    if (__atomic_load_n(&c->bell->told, __ATOMIC_SEQ_CST) == told
        && poll(&wake, 1, simulated ? SIMULATED_NAP_MS : NAP_MS) > 0)
        served = read(c->wake, woken, sizeof woken) != 0;
    __atomic_sub_fetch(&c->bell->waiting, 1, __ATOMIC_SEQ_CST);
    return served;
}
