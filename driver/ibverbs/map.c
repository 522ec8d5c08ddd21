/* Memory of this process for a card that is hardware. The kernel maps only the memory of the process that asks for it:
 * the daemon assigns the addresses, this process maps its pages there, and the daemon unmaps them when the card has the
 * region no more. The file is the card's, so the daemon passes it to programs of the same user, which could take it
 * anyway, and to those of users that it was started to trust. */
#include "weft.h"

#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* include/uapi/linux/iommufd.h, since Linux 6.2. */
struct ioas_map {
    uint32_t size, flags, space, reserved;
    uint64_t address, length, iova;
};
#define IOAS_MAP _IO(VFIO_TYPE, 0x85)
enum { FIXED = 1, WRITE = 2, READ = 4 };

static int map_pages(const struct context *c, uint64_t dma, uintptr_t at, size_t size, int write) {
    struct vfio_iommu_type1_dma_map by_vfio = { .argsz = sizeof by_vfio, .vaddr = at, .iova = dma, .size = size,
        .flags = VFIO_DMA_MAP_FLAG_READ | (write ? VFIO_DMA_MAP_FLAG_WRITE : 0) };
    struct ioas_map by_iommufd = { .size = sizeof by_iommufd, .flags = FIXED | READ | (write ? WRITE : 0),
                                   .space = c->mapping.space, .address = at, .length = size, .iova = dma };
    int is_vfio = c->mapping.method == WEFT_MAPPING_VFIO;
    int failed = is_vfio ? ioctl(c->mapper, VFIO_IOMMU_MAP_DMA, &by_vfio) : ioctl(c->mapper, IOAS_MAP, &by_iommufd);
    return failed ? errno : 0;
}

/* Map the pages of a region from the address `dma` on, which pins them. A region that is not written may consist of
 * pages that permit no writes. */
int map_region(const struct context *c, uint64_t dma, void *start, size_t length, unsigned access) {
    uintptr_t at = (uintptr_t)start & ~(PAGE - 1), end = ((uintptr_t)start + length + PAGE - 1) & ~(PAGE - 1);
    int error = map_pages(c, dma, at, end - at, 1);
    if (error == EFAULT && !(access & WRITES)) error = map_pages(c, dma, at, end - at, 0);
    if (error) weft_log("the kernel does not map %zu bytes at %p for the card: %s%s", length, start, strerror(error),
                        error == ENOMEM ? "; this process may lock too little memory (ulimit -l)"
                        : error == ENOSPC ? "; a card has dma_entry_limit maps at most (module vfio_iommu_type1)" : "");
    return error;
}

/* Lock the pages of a region, for a card that uses physical addresses, and keep them from forked children: a page that
 * both have is copied at a write. They stay locked, because other regions may have them, too. */
int lock_region(void *start, size_t length) {
    uintptr_t at = (uintptr_t)start & ~(PAGE - 1), end = ((uintptr_t)start + length + PAGE - 1) & ~(PAGE - 1);
    if (!madvise((void *)at, end - at, MADV_DONTFORK) && !mlock((void *)at, end - at)) return 0;
    int error = errno;
    weft_log("%zu bytes at %p cannot be locked in memory: %s; this process may lock too little (ulimit -l)", length,
             start, strerror(error));
    return error;
}
