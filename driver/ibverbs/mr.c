/* Protection domains and memory regions.
 *
 * The program's memory is not changed by a registration: the daemon reads and writes it through /proc/self/mem, which
 * each context passes to it once. An open descriptor needs no further permission, in another container or for another
 * user either, and keeps to this address space: after the program's end or exec there is nothing to access. So memory
 * of every kind can be registered, and unmap, remap, decommit, fork and change of protection have their usual effect. A
 * region is a range of addresses: the card accesses the pages that are there at the time, as with on-demand paging.
 * A card that is hardware cannot do that: see map.c.
 *
 * Alternatives, with the time of a copy of 8 B and of 64 KiB between two programs, through a buffer of the daemon:
 * - /proc/PID/mem: 4 us, 40 us. It never waits for a page that the program handles itself (userfaultfd).
 * - process_vm_readv and process_vm_writev: 4 us, 19 us (12 us with pages of 2 MiB). They need the process number in the
 *   daemon's PID namespace and permission to trace: containers and Yama forbid that. docs/direct.md: where they are used.
 * - a mapped memfd instead of the program's pages: 0.01 us, 2 us. Memory that was replaced is not anonymous memory any
 *   more: MADV_DONTNEED keeps its contents, mremap cannot enlarge it, and a fork shares it.
 * - a thread in the program that copies: a wake-up for each transfer, and none while the program is stopped. */
#include "weft.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

struct region {
    struct ibv_mr ibv;
    uint64_t iova;
    unsigned access;
};

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct weft_handle answer;
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    errno = pd ? weft_call(context_of(context), (struct call){ .opcode = WEFT_ALLOC_PD, .answer = &answer,
                                                               .answer_size = sizeof answer }) : ENOMEM;
    if (errno) {
        free(pd);
        return NULL;
    }
    *pd = (struct ibv_pd){ .context = context, .handle = answer.handle };
    return pd;
}

PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd) {
    int error = weft_destroy(context_of(pd->context), WEFT_KIND_PD, pd->handle);
    if (!error) free(pd);
    return error;
}

/* Open this process's memory. A process that changed its user is not dumpable, and may open it only while it is. */
static int open_memory(void) {
    int file = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (file < 0 && errno == EACCES && !prctl(PR_GET_DUMPABLE) && !prctl(PR_SET_DUMPABLE, 1)) {
        file = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
        prctl(PR_SET_DUMPABLE, 0);
    }
    if (file < 0) weft_log("/proc/self/mem cannot be opened: %s", strerror(errno));
    return file;
}

/* Get the file through which this process maps its memory for the card, if it does that. */
static int mapper_of(struct context *c, uint32_t method) {
    int file;
    if ((method != WEFT_MAPPING_VFIO && method != WEFT_MAPPING_IOMMUFD) || c->mapper >= 0) return 0;
    int error = weft_call(c, (struct call){ .opcode = WEFT_MAPPER, .files = &file, .count = 1 });
    if (!error) c->mapper = file;
    return error;
}

/* Get the handle of this process's memory on a connection, which a forked child may have inherited. */
static int memory_of(struct context *c, uint32_t *handle) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct weft_shared answer;
    int error = 0;
    pthread_mutex_lock(&lock);
    if (c->owner != getpid()) {
        int file = open_memory();
        error = file < 0 ? errno : weft_call(c, (struct call){ .opcode = WEFT_SHARE, .file = &file, .answer = &answer,
                                                               .answer_size = sizeof answer });
        if (file >= 0) close(file);
        if (!error && (error = mapper_of(c, answer.method))) weft_destroy(c, WEFT_KIND_MEMORY, answer.handle);
        if (!error) c->owner = getpid(), c->memory = answer.handle, c->mapping = answer;
    }
    *handle = c->memory;
    pthread_mutex_unlock(&lock);
    return error;
}

/* Allocate the pages of a range, as a card does that pins them. Return EFAULT if one is missing or does not permit the
 * access. Linux before 5.14 cannot do that, and the range is not checked. */
static int populate(void *start, size_t length, unsigned access) {
    uintptr_t at = (uintptr_t)start & ~(PAGE - 1), end = ((uintptr_t)start + length + PAGE - 1) & ~(PAGE - 1);
    int result, how = access & WRITES ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (!length || end <= at) return EINVAL;
    do result = madvise((void *)at, end - at, how);
    while (result && (errno == EINTR || errno == EAGAIN));
    return result && (errno != EINVAL || !madvise((void *)((uintptr_t)&at & ~(PAGE - 1)), PAGE, how)) ? EFAULT : 0;
}

/* Make the pages of a region accessible for the card, after the daemon accepted it: a rejected one allocates no pages. */
static int provide(const struct context *c, uint64_t dma, void *start, size_t length, unsigned access) {
    return dma ? map_region(c, dma, start, length, access) : populate(start, length, access);
}

/* Do what has to precede the daemon's look at a region. */
static int prepare(const struct context *c, void *start, size_t length, unsigned access) {
    if (c->mapping.method != WEFT_MAPPING_LOCKED) return 0;
    int error = populate(start, length, access);
    return error ? error : lock_region(start, length);
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *start, size_t length, uint64_t iova, unsigned access) {
    struct context *c = context_of(pd->context);
    struct weft_reg_mr body = { .pd = pd->handle, .access = access & ~IBV_ACCESS_OPTIONAL_RANGE,
                                .address = (uintptr_t)start, .length = length, .iova = iova };
    struct weft_keys keys;
    struct region *mr = calloc(1, sizeof *mr);
    int error = mr ? memory_of(c, &body.memory) : ENOMEM;
    if (!error) error = prepare(c, start, length, access);
    if (!error) error = weft_call(c, (struct call){ .opcode = WEFT_REG_MR, .body = &body, .size = sizeof body,
                                                    .answer = &keys, .answer_size = sizeof keys });
    if (!error && (error = provide(c, keys.dma, start, length, access)))
        weft_destroy(c, WEFT_KIND_MR, keys.handle);
    if (error) {
        free(mr);
        errno = error;
        return NULL;
    }
    *mr = (struct region){ .ibv = { .context = pd->context, .pd = pd, .addr = start, .length = length,
                                    .handle = keys.handle, .lkey = keys.lkey, .rkey = keys.rkey },
                           .iova = iova, .access = access };
    return &mr->ibv;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *start, size_t length, uint64_t iova, int access) {
    return ibv_reg_mr_iova2(pd, start, length, iova, (unsigned)access);
}

PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *start, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, start, length, (uintptr_t)start, (unsigned)access);
}

/* Change a region at the daemon to `as`, in the parts that the flags name. Set `dma` as at a registration. */
static int change(struct region *mr, int flags, const struct region *as, uint64_t *dma) {
    struct context *c = context_of(mr->ibv.context);
    struct weft_rereg_mr body = { .handle = mr->ibv.handle, .flags = (uint32_t)flags, .pd = as->ibv.pd->handle,
        .access = as->access & ~IBV_ACCESS_OPTIONAL_RANGE, .address = (uintptr_t)as->ibv.addr,
        .length = as->ibv.length, .iova = as->iova };
    struct weft_keys keys;
    int moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION, error = moves ? memory_of(c, &body.memory) : 0;
    if (!error) error = weft_call(c, (struct call){ .opcode = WEFT_REREG_MR, .body = &body, .size = sizeof body,
                                                    .answer = &keys, .answer_size = sizeof keys });
    *dma = error || !moves ? 0 : keys.dma;
    return error;
}

/* The keys stay the same. As at a registration, the pages come after the daemon's consent; without them the region is
 * what it was. */
PUBLIC int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *start, size_t length, int access) {
    struct region *mr = container(ibv, struct region, ibv), as = *mr;
    struct context *c = context_of(ibv->context);
    uint64_t dma, former;
    int moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
    if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (moves && (!start || !length))
        || (flags & IBV_REREG_MR_CHANGE_PD && (!pd || pd->context != ibv->context))) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    if (moves) as.ibv.addr = start, as.ibv.length = length, as.iova = (uintptr_t)start;
    if (flags & IBV_REREG_MR_CHANGE_PD) as.ibv.pd = pd;
    if (flags & IBV_REREG_MR_CHANGE_ACCESS) as.access = (unsigned)access;
    int writes = as.access & WRITES && !(mr->access & WRITES);
    /* Its pages may be mapped for reads alone, or others than those that a write allocates. */
    if (writes && c->mapping.method != WEFT_MAPPING_BACK_END) flags |= IBV_REREG_MR_CHANGE_TRANSLATION;
    int error = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? prepare(c, as.ibv.addr, as.ibv.length, as.access) : 0;
    if (error) {
        errno = error;
        return IBV_REREG_MR_ERR_INPUT;
    }
    error = change(mr, flags, &as, &dma);
    if (!error && (moves || writes) && (error = provide(c, dma, as.ibv.addr, as.ibv.length, as.access))
        && !change(mr, flags, mr, &former)
        && (!former || !map_region(c, former, mr->ibv.addr, mr->ibv.length, mr->access))) {
        errno = error;
        return IBV_REREG_MR_ERR_INPUT;
    }
    if (error) {
        errno = error;
        return IBV_REREG_MR_ERR_CMD;
    }
    *mr = as;
    return 0;
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *mr) {
    int error = weft_destroy(context_of(mr->context), WEFT_KIND_MR, mr->handle);
    if (!error) free(container(mr, struct region, ibv));
    return error;
}
