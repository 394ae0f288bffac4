/* What a packet costs DPDK's rte_sched on one core, with descriptors only, for comparison with
 * `altq bench engine`.
 *
 *     rte_sched PIPES SECONDS
 *
 * There is one port with one subport and PIPES pipes. A pipe has 16 queues: one for each of 12
 * traffic classes, and four for the best-effort class. Every queue holds a packet at all times.
 *
 * The bucket of a pipe holds three packets. All buckets together are filled at the rate that the
 * processor can schedule, so each pipe is shaped and has its turn; with large buckets one pipe would
 * be emptied before the next. Bursts of 32 packets are taken out and put back. Nothing is
 * classified. The program prints nanoseconds of CPU time a packet, for enqueue and dequeue.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_sched.h>
#include <rte_version.h>

enum { PACKET = 512, BURST = 32, EACH = 16 };

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "rte_sched: %s\n", what);
    exit(1);
}

static struct rte_sched_port *port_of(uint32_t pipes, uint64_t rate)
{
    struct rte_sched_subport_profile_params subport = { .tb_rate = rate, .tb_size = 1000000, .tc_period = 10 };
    struct rte_sched_pipe_params pipe = { .tb_rate = rate / pipes, .tb_size = 3 * PACKET, .tc_period = 40 };
    for (int tc = 0; tc < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; tc++) {
        subport.tc_rate[tc] = subport.tb_rate;
        pipe.tc_rate[tc] = pipe.tb_rate;
    }
    memset(pipe.wrr_weights, 1, sizeof(pipe.wrr_weights));
    pipe.tc_ov_weight = 1;
    struct rte_sched_port_params params = {
        .name = "peer", .socket = 0, .rate = rate, .mtu = 1522, .frame_overhead = 0, .n_subports_per_port = 1,
        .subport_profiles = &subport, .n_subport_profiles = 1, .n_max_subport_profiles = 1, .n_pipes_per_subport = pipes,
    };
    struct rte_sched_subport_params sub = {
        .n_pipes_per_subport_enabled = pipes, .pipe_profiles = &pipe, .n_pipe_profiles = 1, .n_max_pipe_profiles = 1,
    };
    for (int tc = 0; tc < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; tc++)
        sub.qsize[tc] = 64;
    struct rte_sched_port *port = rte_sched_port_config(&params);
    if (!port)
        die("rte_sched_port_config refuses");
    if (rte_sched_subport_config(port, 0, &sub, 0))
        die("rte_sched_subport_config refuses");
    for (uint32_t at = 0; at < pipes; at++)
        if (rte_sched_pipe_config(port, 0, at, 0))
            die("rte_sched_pipe_config refuses");
    return port;
}

/* Nanoseconds a packet, over `seconds` of CPU time. */
static double run(struct rte_sched_port *port, double seconds, uint64_t *polls)
{
    struct rte_mbuf *burst[BURST];
    uint64_t packets = 0, empty = 0;
    double start = cpu(), now = start;
    while (now - start < seconds * 1e9) {
        for (int round = 0; round < 1000; round++) {
            int n = rte_sched_port_dequeue(port, burst, BURST);
            if (!n) {
                empty++;
                continue;
            }
            if (rte_sched_port_enqueue(port, burst, n) != n)
                die("a packet was dropped");
            packets += n;
        }
        now = cpu();
    }
    *polls = empty;
    return (now - start) / packets;
}

int main(int argc, char **argv)
{
    uint32_t pipes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    if (!pipes || pipes & (pipes - 1))
        die("usage: rte_sched PIPES [SECONDS]; PIPES is a power of two");
    char *eal[] = { "rte_sched", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "1024", "-l", "0", "--log-level", "lib.*:4" };
    if (rte_eal_init(sizeof(eal) / sizeof(*eal), eal) < 0)
        die("rte_eal_init refuses");
    struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", pipes * EACH + 8191, 256, 0, 128, SOCKET_ID_ANY);
    if (!pool)
        die("no memory for packets");
    /* The first port has a rate beyond reach and shows what the processor can do; the second port has
     * that rate. */
    uint64_t rate = 12500000000ull, empty = 0;
    double ns = 0;
    for (int turn = 0; turn < 2; turn++) {
        struct rte_sched_port *port = port_of(pipes, rate);
        for (uint32_t at = 0; at < pipes * EACH; at++) {
            struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);
            if (!packet)
                die("no packet left");
            packet->pkt_len = packet->data_len = PACKET;
            uint32_t queue = at / pipes, be = RTE_SCHED_TRAFFIC_CLASS_BE;
            rte_sched_port_pkt_write(port, packet, 0, at % pipes, queue < be ? queue : be, queue < be ? 0 : queue - be, RTE_COLOR_GREEN);
            if (rte_sched_port_enqueue(port, &packet, 1) != 1)
                die("a packet was dropped");
        }
        ns = run(port, turn ? seconds : 0.3, &empty);
        rate = PACKET * 1e9 / ns;
        rte_sched_port_free(port);
    }
    printf("{\"peer\":\"rte_sched\",\"version\":\"%s\",\"pipes\":%u,\"ns_per_packet\":%.1f,\"empty_polls\":%lu}\n", rte_version(), pipes, ns, empty);
    return 0;
}
