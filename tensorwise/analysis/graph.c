/* Walks through graphs, for tensorwise/analysis/graph.py: rows of an adjacency matrix, in 32 bits. */
#include <stdint.h>

/* Breadth first: distance[v] is the number of edges from source to v, -1 where there is no way. queue has room for all nodes. */
void tw_graph_distances(int64_t nodes, const int32_t *pointers, const int32_t *targets, int64_t source, int32_t *distance,
                        int32_t *queue)
{
    for (int64_t v = 0; v < nodes; v++) distance[v] = -1;
    distance[source] = 0;
    queue[0] = (int32_t)source;
    int64_t first = 0, last = 1;
    while (first < last) {
        const int32_t v = queue[first++];
        for (int32_t e = pointers[v]; e < pointers[v + 1]; e++) {
            const int32_t to = targets[e];
            if (distance[to] < 0) {
                distance[to] = distance[v] + 1;
                queue[last++] = to;
            }
        }
    }
}
