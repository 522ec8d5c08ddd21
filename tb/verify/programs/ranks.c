/* Messages in a ring, a sum and one-sided writes by MPI; every byte is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define MESSAGE_BYTES (1 << 16)

static void check(int right, const char *what) {
    if (right) return;
    fprintf(stderr, "wrong: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int rank, int index, int count) { return rank * 7 + index * 13 + count; }

static void send_around(int rank, int size) {
    static unsigned char sent[MESSAGE_BYTES], received[MESSAGE_BYTES];
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int count = 1; count <= MESSAGE_BYTES; count *= 16) {
        for (int i = 0; i < count; i++) sent[i] = byte_of(rank, i, count);
        MPI_Sendrecv(sent, count, MPI_BYTE, next, 0, received, count, MPI_BYTE, last, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++) check(received[i] == byte_of(last, i, count), "message");
    }
}

static void write_to_all(int rank, int size) {
    long *base, mine = rank * 3;
    MPI_Win window;
    MPI_Win_allocate(size * sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < size; i++) MPI_Put(&mine, 1, MPI_LONG, i, rank, 1, MPI_LONG, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < size; i++) check(base[i] == i * 3, "one-sided write");
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(size > 1, "number of ranks");
    send_around(rank, size);
    int one = rank + 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sum == size * (size + 1) / 2, "sum");
    write_to_all(rank, size);
    if (!rank) printf("%d ranks right\n", size);
    return MPI_Finalize();
}
