# Makes lte.csv: what an LTE line carries, in steps of 100 ms for 120 s.
#
#   awk -f lte.awk > lte.csv
#
# The process and its numbers are those of Winstein, Sivaraman and Balakrishnan, "Stochastic
# Forecasts Achieve High Throughput and Low Delay over Cellular Networks", NSDI 2013, 3.1, which fit
# traces of Verizon, AT&T and T-Mobile: the rate walks as a Brownian motion, 200 packets a second of
# standard deviation after a second, between 0 and 1000 packets of 1500 bytes a second. At 0 it
# stays: an outage, which ends with a rate of 1 a second, after a second on average.
#
# Here the packets themselves are not random (there they are Poisson's), and a step of 0 is written
# as 5 packets a second, because a link of a case carries something at any time.
#
# The seed: of the first twelve multiples of 7919 the one with the least time out (0.8 %; others have
# up to 40 %), so that the 95th percentile of a delay is about controllers, and not about outages.
#
# Random numbers: Park and Miller's generator (x = 16807 x mod 2^31 - 1), exact in awk's numbers. A
# normal number is the sum of twelve even ones less six.
BEGIN {
    x = 2 * 7919
    step = 200 * sqrt(0.1)
    stays = exp(-0.1)
    rate = 500
    for (n = 0; n < 1200; n++) {
        packets = rate < 5 ? 5 : rate
        bits = int(packets) * 12000
        body = body n * 100 "," bits "\n"
        sum += bits
        if (packets == 5) out++
        if (rate > 0) {
            normal = -6
            for (k = 0; k < 12; k++) normal += even()
            rate += step * normal
            if (rate > 1000) rate = 2000 - rate
            if (rate < 0) rate = 0
        } else if (even() > stays) {
            rate = step * even()
        }
    }
    printf "# Made by lte.awk. Time in ms, rate in bit/s. Mean %d bit/s; %.1f %% of the time out.\n", sum / 1200, out / 12
    printf "%s", body
}
function even() {
    x = x * 16807 % 2147483647
    return x / 2147483647
}
