/* Memory of programs: regions by their keys, and copies from and to them. */
#include "direct.h"

#include <unistd.h>

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

/* Read from a region; a page that the program does not have is a fault. */
enum access read_at(struct region *region, uint64_t va, void *to, size_t length) {
    ssize_t got = exists(region) ? pread(region->file, to, length, (off_t)(va + region->offset)) : -1;
    if (got == 0) ended(region);
    return got == (ssize_t)length ? DONE : FAULT;
}

/* Write into a region; pages that the program does not have are left out. */
void write_at(struct region *region, uint64_t va, const void *from, size_t length) {
    const size_t page = 4096;
    while (length && exists(region)) {
        ssize_t put = pwrite(region->file, from, length, (off_t)(va + region->offset));
        if (put == 0) ended(region);
        size_t step = put > 0 ? (size_t)put : page - va % page;
        if (step >= length) return;
        from = (const uint8_t *)from + step;
        va += step;
        length -= step;
    }
}

/* Apply a copy to the bytes of a list from `at` on. */
static enum access each(struct host *host, uint32_t pd, const struct parts *parts, uint64_t at, uint8_t *data,
                        size_t length, int writes) {
    for (uint32_t n = 0; n < parts->count && length; n++) {
        const struct part *part = &parts->part[n];
        if (at >= part->length) {
            at -= part->length;
            continue;
        }
        size_t used = part->length - at < length ? part->length - at : length;
        struct region *region = region_at(host, 1, pd, part->va + at, used, part->key,
                                          writes ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (!region) return DENIED;
        if (writes) write_at(region, part->va + at, data, used);
        else if (read_at(region, part->va + at, data, used) != DONE) return FAULT;
        data += used;
        length -= used;
        at = 0;
    }
    return DONE;
}

enum access gather(struct host *host, uint32_t pd, const struct parts *parts, uint64_t at, uint8_t *to,
                   size_t length) {
    return each(host, pd, parts, at, to, length, 0);
}

enum access scatter(struct host *host, uint32_t pd, const struct parts *parts, uint64_t at, const uint8_t *from,
                    size_t length) {
    return each(host, pd, parts, at, (uint8_t *)(uintptr_t)from, length, 1);
}
