/* Memory of programs: regions by their keys, and copies from and to them. */
#include "direct.h"

#include <sys/uio.h>
#include <unistd.h>

enum { AT_ONCE = 8 << 10 }; /* bytes from which on two calls are faster than a look at each page */

/* Return the region that an access may use, or NULL. The access is not empty. */
struct region *region_at(struct host *host, int local, uint32_t pd, uint64_t va, uint64_t length, uint32_t key,
                         uint32_t need) {
    uint32_t index = key >> WEFT_KEY_TAG_BITS;
    struct region *region = index < host->region_count ? host->regions[index] : NULL;
    if (!region || (local ? region->lkey : region->rkey) != key || region->pd != pd || need & ~region->access
        || va < region->va || length > region->length || va - region->va > region->length - length) return NULL;
    return region;
}

/* Return true if the first `length` bytes of a list may be used. */
int parts_allowed(struct host *host, uint32_t pd, const struct parts *parts, uint64_t length, uint32_t need) {
    for (uint32_t n = 0; n < parts->count && length; n++) {
        const struct part *part = &parts->part[n];
        uint64_t used = part->length < length ? part->length : length;
        if (used && !region_at(host, 1, pd, part->va, used, part->key, need)) return 0;
        length -= used;
    }
    return 1;
}

static int exists(const struct region *region) { return !region->client->dead && !region->gone; }

/* Copy a range by the file of its process; a read from a page that the program does not have is a fault, and a write
 * leaves such pages out. */
static enum access by_file(struct region *region, uint64_t at, uint8_t *data, size_t length, int writes) {
    const size_t page = 4096;
    while (length && exists(region)) {
        ssize_t n = writes ? pwrite(region->file, data, length, (off_t)at)
                           : pread(region->file, data, length, (off_t)at);
        if (n == (ssize_t)length) return DONE;
        if (n == 0) ended(region);
        if (!writes) return FAULT;
        size_t step = n > 0 ? (size_t)n : page - at % page;
        if (step >= length) return DONE;
        data += step;
        at += step;
        length -= step;
    }
    return writes ? DONE : FAULT;
}

/* Copy ranges of one process in one call; return false if a part is left. The number of a process may belong to another
 * program after its end or exec: its file shows that there is nothing to access any more. */
static int by_number(struct region *region, const struct iovec *at, size_t count, uint8_t *data, size_t length,
                     int writes) {
    struct iovec own = { data, length };
    uint8_t probe;
    if (!region->process || length < AT_ONCE || !exists(region) || !pread(region->file, &probe, 1, 0)) return 0;
    return (writes ? process_vm_writev : process_vm_readv)(region->process, &own, 1, at, count, 0) == (ssize_t)length;
}

/* Copy the ranges of regions; those of one process together, as far as that is possible. */
static enum access move(struct region **regions, const struct iovec *at, size_t count, uint8_t *data, int writes) {
    enum access found = DONE;
    for (size_t n = 0, next; n < count && found == DONE; n = next) {
        size_t length = at[n].iov_len;
        for (next = n + 1; next < count && regions[next]->file == regions[n]->file; next++) length += at[next].iov_len;
        struct fabric *fabric = regions[n]->client->host->fabric;
        fabric->copies_of = regions[n]->client->tag;
        STORE(fabric->copies, fabric->copies + 1);
        int together = by_number(regions[n], at + n, next - n, data, length, writes);
        for (size_t m = n; m < next && found == DONE; data += at[m++].iov_len)
            if (!together) found = by_file(regions[m], (uintptr_t)at[m].iov_base, data, at[m].iov_len, writes);
        STORE(fabric->copies, fabric->copies + 1);
    }
    return found;
}

/* Copy a range of one region, as copy_list() does. */
enum access copy_range(struct region *region, uint64_t va, const void *data, size_t length, int writes) {
    return move(&region, &(struct iovec){ (void *)(uintptr_t)(va + region->offset), length }, 1,
                (uint8_t *)(uintptr_t)data, writes);
}

/* Copy the bytes of a list from `at` on; none if one of them is denied. */
enum access copy_list(struct host *host, uint32_t pd, const struct parts *parts, uint64_t at, const void *data,
                      size_t length, int writes) {
    struct region *regions[SGES_MAX];
    struct iovec ranges[SGES_MAX];
    size_t count = 0;
    for (uint32_t n = 0; n < parts->count && length; n++) {
        const struct part *part = &parts->part[n];
        if (at >= part->length) {
            at -= part->length;
            continue;
        }
        size_t used = part->length - at < length ? part->length - at : length;
        regions[count] = region_at(host, 1, pd, part->va + at, used, part->key, writes ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (!regions[count]) return DENIED;
        ranges[count] = (struct iovec){ (void *)(uintptr_t)(part->va + at + regions[count]->offset), used };
        count++;
        length -= used;
        at = 0;
    }
    return move(regions, ranges, count, (uint8_t *)(uintptr_t)data, writes);
}
