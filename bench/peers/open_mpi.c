// Open MPI's collectives: one line of JSON from rank 0. Arguments: collective bytes repetitions, again and again.
// Measures as `thinwire bench collective` does: a barrier, then the collective; the time of a repetition is that of
// the slowest rank.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void once(const char *what, float *values, float *others, int count) {
    if (!strcmp(what, "all-reduce"))
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(what, "all-gather"))
        MPI_Allgather(values, count, MPI_FLOAT, others, count, MPI_FLOAT, MPI_COMM_WORLD);
    else
        MPI_Bcast(values, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) printf("[");
    for (int at = 1; at + 2 < argc; at += 3) {
        const char *what = argv[at];
        long bytes = atol(argv[at + 1]);
        int repeats = atoi(argv[at + 2]), count = (int)(bytes / 4);
        float *values = calloc(count, 4), *others = calloc((size_t)count * size, 4);
        double *times = calloc(repeats, sizeof *times);
        for (int i = 0; i < 3; i++) once(what, values, others, count);
        for (int i = 0; i < repeats; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begun = MPI_Wtime();
            once(what, values, others, count);
            times[i] = MPI_Wtime() - begun;
        }
        MPI_Allreduce(MPI_IN_PLACE, times, repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        qsort(times, repeats, sizeof *times, by_value);
        if (rank == 0)
            printf("%s{\"collective\": \"%s\", \"bytes\": %ld, \"p50_ms\": %.6f}", at > 1 ? ", " : "", what, bytes,
                   times[repeats / 2] * 1e3);
        free(values), free(others), free(times);
    }
    if (rank == 0) printf("]\n");
    MPI_Finalize();
    return 0;
}
