/* Stand-in for the kernel's VFIO and iommufd, preloaded into a program: maps that are asked for are written to the file
 * MAPS as "address size dma write". As the kernel, it allocates the pages, and rejects those that do not permit it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/vfio.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct ioas_map {
    uint32_t size, flags, space, reserved;
    uint64_t address, length, iova;
};

static int mapped(uint64_t address, uint64_t size, uint64_t dma, int write) {
    if (madvise((void *)address, size, write ? 23 : 22)) { /* MADV_POPULATE_WRITE, MADV_POPULATE_READ */
        errno = EFAULT;
        return -1;
    }
    FILE *file = fopen(getenv("MAPS"), "a");
    if (!file) abort();
    fprintf(file, "%llu %llu %llu %d\n", (unsigned long long)address, (unsigned long long)size,
            (unsigned long long)dma, write);
    return fclose(file);
}

int ioctl(int file, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (request == VFIO_IOMMU_MAP_DMA) {
        const struct vfio_iommu_type1_dma_map *map = argument;
        if (map->argsz != sizeof *map || !(map->flags & VFIO_DMA_MAP_FLAG_READ)) abort();
        return mapped(map->vaddr, map->size, map->iova, !!(map->flags & VFIO_DMA_MAP_FLAG_WRITE));
    }
    if (request == _IO(VFIO_TYPE, 0x85)) {
        const struct ioas_map *map = argument;
        if (map->size != sizeof *map || (map->flags & 5) != 5 || map->space != 7) abort();
        return mapped(map->address, map->length, map->iova, map->flags >> 1 & 1);
    }
    return ((int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl"))(file, request, argument);
}
