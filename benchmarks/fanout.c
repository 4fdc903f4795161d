/* One producer and many consumers that wait for its records with long polls.
 *
 *   fanout port=P topic=T consumers=C rate=Q batch=BYTES seconds=S wait_ms=MS sessions=0|1
 *
 * Each consumer has a connection of its own and reads all of the topic's one partition, from where
 * it ends at the start. The producer sends one record at a time, `rate` a second, and each carries
 * the time when it was due. A latency is that of one record at one consumer, from when the record
 * was due until the consumer has it; all consumers get all records, or the run has failed. With
 * rate=0 nothing is produced, and the latencies are those of empty polls, from request to answer.
 *
 * All connections are served by one process, one after the other, so the latency of the last
 * consumer has the program's own time for the others in it: some microseconds each.
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "fetch.h"
#include "produce.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum { MAX_CONSUMERS = 1000, OUT_ROOM = MAX_BATCH + 1024, IN_ROOM = RECEIVE_BYTES / 8,
       MAX_EVENTS = 64, PRODUCER = MAX_CONSUMERS, TIMER, BEHIND_SECONDS_MAX = 20 };

struct member {
  struct consumer consumer;
  int64_t received;
  double asked_at;
  bool waits;
};

static const char *topic = "bench";
static int64_t port = 9092, consumer_count = 100, rate = 20, batch = 1024, seconds = 5,
               wait_ms = 500, sessions = 1;
static const struct argument arguments[] = {
    {"topic", .text = &topic},
    {"port", &port, 1, 65535},
    {"consumers", &consumer_count, 0, MAX_CONSUMERS},
    {"rate", &rate, 0, 10000},
    {"batch", &batch, 128, 65536},
    {"seconds", &seconds, 1, 600},
    {"wait_ms", &wait_ms, 1, 30000},
    {"sessions", &sessions, 0, 1},
    {NULL},
};
static struct member members[MAX_CONSUMERS];
static struct producer producer;
static struct topic found_topic;
static int epoll, timer;
static int64_t sent, acknowledged, complete, responses, bytes;
static size_t time_at;                           /* where a batch has the time it was due */
static double start;

static void watch(int fd, uint32_t who) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = who};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl", errno);
}

/* --- the producer ------------------------------------------------------------------------ */

static double due(void) { return start + (double)sent / rate; }

static void await_due(void) {
  double time = due();
  struct itimerspec at = {.it_value = {.tv_sec = time, .tv_nsec = (time - (int64_t)time) * 1e9}};
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void send_due(void) {
  struct producer *p = &producer;
  uint64_t expirations;
  if (read(timer, &expirations, sizeof expirations) < 0) return;
  while (sent < rate * seconds && due() <= now()) {
    if (link_is_sending(&p->link)) fail("the broker does not receive", sent);
    put(p->batch + time_at, (uint64_t)(due() * 1e9), 8);
    put(p->batch + AT_SEQUENCE, p->sequence++, 4);
    put(p->batch + AT_CRC, crc32c(p->batch + AT_ATTRIBUTES, p->batch_size - AT_ATTRIBUTES), 4);
    put(p->link.out + 8, p->correlation++, 4);
    sent++;
    link_start(&p->link);
  }
  if (sent < rate * seconds) await_due();
}

static void receive_acknowledgements(void) {
  struct reader body;
  link_receive(&producer.link);
  while (link_next(&producer.link, &body)) {
    check_produced(body);
    acknowledged++;
  }
}

/* --- the consumers ----------------------------------------------------------------------- */

static bool is_over(void) {
  return now() >= start + seconds && acknowledged == sent && complete == consumer_count;
}

static void poll_again(struct member *m) {
  m->waits = !is_over();
  if (!m->waits) return;
  consumer_prepare(&m->consumer, found_topic.id);
  m->asked_at = now();
  link_start(&m->consumer.link);
  if (link_is_sending(&m->consumer.link)) fail("the broker does not receive", 0);
}

static void take_response(struct member *m, struct reader body, double received_at) {
  struct consumer *c = &m->consumer;
  struct fetched found = consumer_accept(c, body);
  const uint8_t *one;
  size_t size;
  responses++;
  m->waits = false;
  if (!rate) note_sample(received_at - m->asked_at);
  while ((one = next_batch(c, &found.records, &size))) {
    struct reader due_at = {one + time_at, one + size};
    note_sample(received_at - get(&due_at, 8) / 1e9);
    bytes += size;
    complete += ++m->received == rate * seconds;
  }
}

static void receive(struct member *m) {
  struct reader body;
  link_receive(&m->consumer.link);
  double received_at = now();
  while (link_next(&m->consumer.link, &body)) take_response(m, body, received_at);
  if (!m->waits) poll_again(m);
}

/* Where the partition ends: a consumer that begins there sees nothing but new records. */
static int64_t log_end(void) {
  struct consumer c = {.link = producer.link, .bytes_max = 1};
  consumer_prepare(&c, found_topic.id);
  return consumer_accept(&c, ask(&c.link, c.link.out + c.link.out_size)).high_watermark;
}

/* --- the run ----------------------------------------------------------------------------- */

static void connect_all(void) {
  producer.link = link_open(port, OUT_ROOM, IN_ROOM);
  wait_for_topic(&producer.link, topic, &found_topic);
  int64_t end = log_end();
  producer_prepare(&producer, found_topic.id, 0, batch, 1, -1);
  /* The value ends before the count of headers; it is all of the batch but some 80 bytes. */
  time_at = producer.batch_size - 1 - 8;
  link_unblock(&producer.link);
  watch(producer.link.fd, PRODUCER);
  for (int i = 0; i < consumer_count; i++) {
    struct consumer *c = &members[i].consumer;
    *c = (struct consumer){.link = link_open(port, 4096, IN_ROOM), .wait_ms = wait_ms,
                           .bytes_max = IN_ROOM / 2, .uses_session = sessions, .offset = end};
    link_unblock(&c->link);
    watch(c->link.fd, i);
  }
}

static bool is_busy(void) {
  bool busy = !is_over();
  for (int i = 0; i < consumer_count; i++) busy |= members[i].waits;
  return busy;
}

static void run(void) {
  struct epoll_event events[MAX_EVENTS];
  while (is_busy()) {
    if (now() > start + seconds + BEHIND_SECONDS_MAX) fail("records are missing", complete);
    int count = epoll_wait(epoll, events, MAX_EVENTS, 50);
    if (count < 0) fail("epoll_wait", errno);
    for (int i = 0; i < count; i++) {
      uint32_t who = events[i].data.u32;
      if (who == TIMER) send_due();
      else if (who == PRODUCER) receive_acknowledgements();
      else receive(&members[who]);
    }
  }
}

static void leave(void) {
  for (int i = 0; i < consumer_count; i++) {
    fcntl(members[i].consumer.link.fd, F_SETFL, 0);
    consumer_close(&members[i].consumer);
  }
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: fanout name=value...", argc);
  parse(arguments, argv + 1);
  crc_prepare();
  epoll = epoll_create1(0);
  timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  connect_all();
  start = now() + 0.5;                           /* by then all consumers wait */
  if (!rate) complete = consumer_count;
  for (int i = 0; i < consumer_count; i++) poll_again(&members[i]);
  if (rate) {
    watch(timer, TIMER);
    await_due();
  }
  run();
  double elapsed = now() - start;
  leave();
  report(elapsed, bytes, responses, "");
  return 0;
}
