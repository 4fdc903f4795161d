/* Produce requests (v13, by topic id) that bring one batch after the other to one partition. */
#ifndef LAKELOG_PRODUCE_H
#define LAKELOG_PRODUCE_H
#include "cluster.h"

enum { PRODUCE = 0 };

/* `batch` is in the request, and has the sequence number 0 when its CRC is `plain_crc`. */
struct producer {
  struct link link;
  uint8_t *batch;
  size_t batch_size;
  uint32_t plain_crc, sequence;
  int records, correlation;
};

/* The request with a batch of about `size` bytes, and the broker's word for its producer id. */
static inline void producer_prepare(struct producer *p, const uint8_t *topic_id, int partition,
                                    int size, int records, int acks) {
  int epoch;
  int64_t producer_id = init_producer_id(&p->link, &epoch);
  uint8_t *scratch = malloc(MAX_BATCH + 64);
  p->records = records;
  p->batch_size = build_batch(scratch, size, records, producer_id, epoch);
  if (p->batch_size > MAX_BATCH) fail("batch too large", p->batch_size);
  uint8_t *at = put(put(put(begin(p->link.out, PRODUCE, 13, 0), 0, 1), acks, 2), 30000, 4);
  at = put_uvarint(put_bytes(put_uvarint(at, 2), topic_id, 16), 2);
  p->batch = put_uvarint(put(at, partition, 4), p->batch_size + 1);
  at = put_bytes(p->batch, scratch, p->batch_size);
  free(scratch);
  finish(&p->link, put(at, 0, 3));
  p->link.out_sent = p->link.out_size;
  p->plain_crc = crc32c(p->batch + AT_ATTRIBUTES, p->batch_size - AT_ATTRIBUTES);
}

/* Gives the request the next sequence number; `learn_sequence_patterns` has seen the batch. */
static inline void producer_renew(struct producer *p) {
  set_sequence(p->batch, p->plain_crc, p->sequence);
  p->sequence = (p->sequence + p->records) & 0x7fffffff;
  put(p->link.out + 8, p->correlation++, 4);
}

static inline void check_produced(struct reader in) {
  get_length(&in);
  take(&in, 16);
  get_length(&in);
  get(&in, 4);
  int code = get(&in, 2);
  if (code) fail("Produce error", code);
}

#endif
