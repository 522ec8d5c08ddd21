/* Mappings of this process, from /proc/self/maps. */
#include "weft.h"

#include <stdio.h>
#include <sys/mman.h>

static int next_segment(FILE *maps, struct segment *s) {
    char line[512], flags[8];
    unsigned long start, end, inode;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, flags, &inode) == 4) {
            int protection = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0)
                | (flags[2] == 'x' ? PROT_EXEC : 0);
            *s = (struct segment){ start, end, flags[3] == 's', protection, inode };
            return 1;
        }
    return 0;
}

/* Return true if all pages are of the file with this inode. */
int pages_are_of(uintptr_t start, uintptr_t end, ino_t inode) {
    struct segment s;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && start < end && next_segment(maps, &s))
        if (s.end > start && (s.start > start || s.inode != inode)) break;
        else if (s.end > start) start = s.end;
    if (maps) fclose(maps);
    return start >= end;
}

/* Check that pages are mapped with the permissions `wanted`; return 0 or an error number. */
int pages_permitted(uintptr_t start, uintptr_t end, int wanted) {
    struct segment s;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && start < end && next_segment(maps, &s)) {
        if (s.end <= start) continue;
        if (s.start > start || (s.protection & wanted) != wanted) break;
        start = s.end;
    }
    if (maps) fclose(maps);
    return start >= end ? 0 : EFAULT;
}

/* Find the run of private pages of one protection around `at`; return 0 or an error number. */
int pages_run(uintptr_t at, struct segment *run) {
    struct segment s;
    *run = (struct segment){ 0 };
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && next_segment(maps, &s)) {
        if (!s.shared && !run->shared && run->end == s.start && run->protection == s.protection) run->end = s.end;
        else if (run->end > at) break;
        else *run = s;
    }
    if (maps) fclose(maps);
    if (run->start > at || run->end <= at) return EFAULT;
    if (!run->shared) return 0;
    weft_log("memory that this process shares with others cannot be registered");
    return EOPNOTSUPP;
}

/* Replace pages of a file by private ones, with their current protection. */
void pages_make_private(uintptr_t from, uintptr_t to, int file, off_t offset) {
    struct segment s;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && next_segment(maps, &s) && s.start < to)
        if (s.end > from) {
            uintptr_t start = s.start > from ? s.start : from, end = s.end < to ? s.end : to;
            mmap((void *)start, end - start, s.protection, MAP_PRIVATE | MAP_FIXED, file,
                 offset + (off_t)(start - from));
        }
    if (maps) fclose(maps);
}
