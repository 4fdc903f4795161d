/* Fetch requests (v16, by topic id) of one partition, with a fetch session (KIP-227) or without.
 *
 * In a session the partition is named only when its offset has changed, as the Java client does;
 * without one it is named each time, as librdkafka does.
 */
#ifndef LAKELOG_FETCH_H
#define LAKELOG_FETCH_H
#include "cluster.h"

enum { FETCH = 1, RESPONSE_BYTES_MAX = RECEIVE_BYTES / 2 };

struct consumer {
  struct link link;
  int partition, correlation, wait_ms, bytes_max;
  bool uses_session;
  int32_t session_id, session_epoch;             /* epoch 0 asks for a session */
  int64_t offset, offset_told;
};

/* What a response has brought. */
struct fetched {
  struct reader records;
  int64_t high_watermark;                        /* -1 if the partition is not in the response */
};

static inline void consumer_prepare(struct consumer *c, const uint8_t *topic_id) {
  bool named = !c->session_id || c->offset != c->offset_told;
  uint8_t *at = begin(c->link.out, FETCH, 16, c->correlation++);
  at = put(put(put(put(at, c->wait_ms, 4), 1, 4), RESPONSE_BYTES_MAX, 4), 0, 1);
  at = put(put(at, c->session_id, 4), c->uses_session ? c->session_epoch : -1, 4);
  at = put_uvarint(at, named ? 2 : 1);
  if (named) {
    at = put_uvarint(put_bytes(at, topic_id, 16), 2);
    at = put(put(put(at, c->partition, 4), -1, 4), c->offset, 8);
    at = put(put(put(put(at, -1, 4), -1, 8), c->bytes_max, 4), 0, 2);
  }
  finish(&c->link, put(at, 0x010100, 3));        /* nothing forgotten, no rack, no tags */
  c->offset_told = c->offset;
}

static inline struct fetched consumer_accept(struct consumer *c, struct reader in) {
  struct fetched found = {{in.end, in.end}, -1};
  get(&in, 4);
  int code = get(&in, 2);
  if (code) fail("Fetch error", code);
  c->session_id = get(&in, 4);
  if (c->uses_session && !c->session_id) fail("no room for a fetch session", 0);
  c->session_epoch++;
  if (!get_length(&in)) return found;            /* nothing new in this session */
  take(&in, 16);
  get_length(&in);
  get(&in, 4);
  if ((code = get(&in, 2))) fail("Fetch partition error", code);
  found.high_watermark = get(&in, 8);
  take(&in, 16);
  for (uint32_t aborted = get_length(&in); aborted; aborted--) {
    take(&in, 16);
    skip_tags(&in);
  }
  get(&in, 4);
  uint32_t size = get_length(&in);
  found.records = (struct reader){take(&in, size), in.at};
  return found;
}

/* The next whole batch, which is what the consumer asks for next; null if there is none. */
static inline const uint8_t *next_batch(struct consumer *c, struct reader *records, size_t *size) {
  if (records->end - records->at < BATCH_HEADER) return NULL;
  struct reader head = *records;
  int64_t base = get(&head, 8), length = get(&head, 4);
  if (length > head.end - head.at) return NULL;
  const uint8_t *batch = take(records, *size = length + 12);
  head = (struct reader){batch + AT_ATTRIBUTES + 2, records->end};
  c->offset = base + get(&head, 4) + 1;
  return batch;
}

/* Gives the session's slot back; nothing else of this consumer is under way. */
static inline void consumer_close(struct consumer *c) {
  if (c->session_id) {
    uint8_t *at = begin(c->link.out, FETCH, 16, c->correlation++);
    at = put(put(put(put(at, 0, 4), 1, 4), RESPONSE_BYTES_MAX, 4), 0, 1);
    at = put(put(put(at, c->session_id, 4), -1, 4), 1, 1);
    struct reader in = ask(&c->link, put(at, 0x010100, 3));
    get(&in, 4);
    int code = get(&in, 2);
    if (code) fail("closing a fetch session", code);
  }
  close(c->link.fd);
}

#endif
