/* psring's C interface: jobs, memory, collectives and messages, for programs in any language.
 *
 * Every function but psring_abi_version, psring_last_error and those that return a rank, a size or a pointer returns a
 * psring_status. If it is not PSRING_OK, psring_last_error() of the same thread is one line that says what happened; it
 * names the peer, the operation and its number.
 *
 * Threads: any thread may call any function at any time, except that a handle must not be freed while another thread
 * uses it. No exception leaves the library. All waits have a deadline. A process that was forked from a member of a job
 * is not a member: its calls return PSRING_USAGE, and freeing handles there does nothing.
 *
 * Collectives: all ranks of a group start the same operations with the same counts and types, in the same order. A
 * function that starts an operation returns at once, with a work handle; a thread of the library continues the
 * operation while the caller computes. `*work` is null if the operation is complete already; null is a valid handle of
 * a complete operation. The memory of an operation must not be touched or freed until it is complete. If a rank is 32
 * operations ahead of another rank, its next call waits for that rank, at most for the job's --op-timeout.
 *
 * Errors of an operation (PSRING_PEER_LOST, PSRING_USAGE for ranks that called different operations, ...) end the job:
 * every later call returns the same error, at all ranks. Messages (psring_send, psring_recv, psring_all_to_all) are not
 * compared with other operations. */
#ifndef PSRING_C_H
#define PSRING_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PSRING_API __attribute__((visibility("default")))
#else
#define PSRING_API
#endif

/* Grows by one when a function, type or meaning changes so that older programs break. New functions, and new members at
 * the end of structs that begin with their size, leave it as it is. */
#define PSRING_ABI_VERSION 1

typedef enum psring_status {
  PSRING_OK = 0,
  PSRING_BUG = 1,          /* a defect of psring */
  PSRING_USAGE = 2,        /* an argument is wrong, or ranks called different operations */
  PSRING_DATA = 3,         /* a bad file, or not enough memory or threads */
  PSRING_PEER_LOST = 4,    /* a peer died or fell silent, or aborted the job */
  PSRING_TIMEOUT = 5,      /* the job's own deadline passed */
  PSRING_PROTOCOL = 6,     /* a peer sent what the protocol does not allow */
  PSRING_UNAUTHORISED = 7, /* this process or a peer does not hold the job's key */
  PSRING_PENDING = 8       /* the caller's deadline passed; the operation is still in flight */
} psring_status;

/* The type of a vector's elements. A number, so that any number may be passed: an unknown one is refused. */
typedef int32_t psring_type;
enum {
  PSRING_F32 = 0,
  PSRING_F64 = 1,
  PSRING_F16 = 2,
  PSRING_BF16 = 3,
  PSRING_I8 = 4,
  PSRING_U8 = 5,
  PSRING_I32 = 6,
  PSRING_I64 = 7
};

/* A reduction. PSRING_MEAN takes floats, the bitwise operations take integers, the others take all types. 16-bit floats
 * are added in f32, and rounded once. */
typedef int32_t psring_op;
enum {
  PSRING_SUM = 0,
  PSRING_MEAN = 1,
  PSRING_PRODUCT = 2,
  PSRING_MIN = 3,
  PSRING_MAX = 4,
  PSRING_BIT_AND = 5,
  PSRING_BIT_OR = 6,
  PSRING_BIT_XOR = 7
};

typedef struct psring_job psring_job;       /* this process's membership in a job */
typedef struct psring_group psring_group;   /* ranks that exchange vectors */
typedef struct psring_vector psring_vector; /* values that the job's servers own */
typedef struct psring_table psring_table;   /* rows by 64-bit keys that the job's servers own */
typedef struct psring_rows psring_rows;     /* the rows of one batch's keys */
typedef struct psring_work psring_work;     /* an operation in flight */

PSRING_API uint32_t psring_abi_version(void);
/* The line of the calling thread's last error, or of its last psring_wait or psring_leave that returned PSRING_PENDING;
 * "" if there was none. Valid until the thread's next call. */
PSRING_API const char* psring_last_error(void);

/* --- the job --- */

typedef struct psring_join_options {
  size_t size;          /* sizeof(psring_join_options) */
  const char* endpoint; /* HOST:PORT of the coordinator */
  const char* key_file;
  int64_t rank;        /* the rank to ask for; -1: any */
  const char* bind;    /* the address to listen at; null: the address that routes to the coordinator */
  double join_timeout; /* seconds for the coordinator to answer; 0: 30 */
  size_t memory_bytes; /* the capacity of psring_allocate; 0: 1 GiB. Memory that is not allocated costs nothing. */
} psring_join_options;

/* Joins a job as a worker, and waits until all its workers have joined. */
PSRING_API psring_status psring_join(const psring_join_options* options, psring_job** job);
/* A collective, the last one: waits until all ranks have called it, tells the coordinator that this worker is done, and
 * waits until the job has ended. PSRING_PENDING if that takes longer than `timeout` seconds; then it may be repeated.
 * Operations that are in flight then, as a receive of a message that never comes, end with PSRING_USAGE. */
PSRING_API psring_status psring_leave(psring_job* job, double timeout);
/* Ends the job at all ranks with this reason, from any thread. All calls that wait return PSRING_PEER_LOST. */
PSRING_API psring_status psring_abort(psring_job* job, const char* reason);
/* Returns the error that ended the job, or PSRING_OK. Never waits. */
PSRING_API psring_status psring_check(psring_job* job);
/* Frees the job, its memory, and what is left of its groups and works: no handle of the job may be used afterwards. If
 * the job was neither left nor aborted, the other ranks see a lost worker. */
PSRING_API void psring_free(psring_job* job);

/* --- memory --- */

/* Returns zeroed memory, aligned to 64 bytes, that the other ranks of this host reach without a copy. */
PSRING_API psring_status psring_allocate(psring_job* job, size_t bytes, void** memory);
/* REQUIRES: no operation uses the memory. */
PSRING_API psring_status psring_release(psring_job* job, void* memory);

/* The purpose of memory: the run's report has the bytes of each, now and at their peak. */
typedef int32_t psring_purpose;
enum {
  PSRING_PARAMETERS = 0,
  PSRING_GRADIENTS = 1,
  PSRING_OPTIMIZER = 2,
  PSRING_ACTIVATIONS = 3,
  PSRING_COMMUNICATION = 4,
  PSRING_STAGING = 5
};
/* psring_allocate for a purpose; psring_allocate books its memory as gradients. */
PSRING_API psring_status psring_allocate_for(psring_job* job, size_t bytes, psring_purpose purpose, void** memory);
/* Books memory that the program has from elsewhere: so many bytes more, or fewer if negative. Fewer than this function
 * has booked before are refused. */
PSRING_API psring_status psring_book(psring_job* job, psring_purpose purpose, int64_t bytes);
/* Sets the bytes that are booked now, and their peak. */
PSRING_API psring_status psring_memory(psring_job* job, psring_purpose purpose, size_t* now, size_t* peak);

/* --- groups --- */

/* The group of all workers of the job. It belongs to the job. */
PSRING_API psring_group* psring_world(psring_job* job);
/* Makes a group of the given ranks of `parent`, in this order. The ranks of the new group call it, and no other rank.
 * They agree on `id`, from 1, which no other group that shares a rank with it has, now or later. A job of up to 16
 * workers on one host has room for 8191 of them, one of 128 for 376; PSRING_USAGE says so if there is none left. */
PSRING_API psring_status psring_split(psring_group* parent, const uint32_t* ranks, size_t count, uint32_t id,
                                      psring_group** group);
/* Frees a group of psring_split. Operations that are in flight go on, and still need their memory. */
PSRING_API void psring_group_free(psring_group* group);
PSRING_API size_t psring_rank(const psring_group* group);
PSRING_API size_t psring_size(const psring_group* group);

/* --- operations --- */

/* `data` becomes the reduction of all ranks' data. */
PSRING_API psring_status psring_all_reduce(psring_group* group, void* data, size_t count, psring_type type,
                                           psring_op op, psring_work** work);
/* The rank-th of size() consecutive parts of `data` becomes the reduction of all ranks' parts; the other parts are
 * undefined afterwards. `counts` has each part's elements; null: equal parts of `count` elements in all. */
PSRING_API psring_status psring_reduce_scatter(psring_group* group, void* data, size_t count, const size_t* counts,
                                               psring_type type, psring_op op, psring_work** work);
/* The r-th of size() consecutive parts of `data` becomes rank r's r-th part, for all r. `counts`: as above. */
PSRING_API psring_status psring_all_gather(psring_group* group, void* data, size_t count, const size_t* counts,
                                           psring_type type, psring_work** work);
/* `data` becomes the root's data. */
PSRING_API psring_status psring_broadcast(psring_group* group, void* data, size_t count, psring_type type, size_t root,
                                          psring_work** work);
/* Complete once all ranks have called it. */
PSRING_API psring_status psring_barrier(psring_group* group, psring_work** work);
/* Part r of `in`, of in_counts[r] elements, goes to rank r, and becomes part `rank` of its `out`. Counts of 0 are sent
 * to nobody, so that a gather and a scatter are calls of this function, too. `in` and `out` do not overlap. */
PSRING_API psring_status psring_all_to_all(psring_group* group, const void* in, const size_t* in_counts, void* out,
                                           const size_t* out_counts, psring_type type, psring_work** work);
/* A receive takes the first message with its tag from its rank, or from any rank. Messages of one rank with one tag
 * keep their order. Counts and types have to agree. */
#define PSRING_ANY_RANK SIZE_MAX
PSRING_API psring_status psring_send(psring_group* group, const void* data, size_t count, psring_type type, size_t to,
                                     int64_t tag, psring_work** work);
PSRING_API psring_status psring_recv(psring_group* group, void* data, size_t count, psring_type type, size_t from,
                                     int64_t tag, psring_work** work);
/* The rank whose message a complete receive from PSRING_ANY_RANK has taken: the work of such a receive is never null.
 */
PSRING_API psring_status psring_source(psring_work* work, size_t* rank);

/* Sets the bytes of payload that the group's operations have moved at this rank so far. A peer may still count an
 * operation that is complete here; after a barrier of another group all are counted. */
PSRING_API psring_status psring_moved(psring_group* group, uint64_t* sent, uint64_t* received);
/* A collective whose bytes psring_predict knows. */
typedef int32_t psring_collective;
enum { PSRING_ALL_REDUCE = 0, PSRING_REDUCE_SCATTER = 1, PSRING_ALL_GATHER = 2 };
/* Sets the bytes that a call with equal parts moves at this rank, by the formula of its plan. */
PSRING_API psring_status psring_predict(psring_group* group, psring_collective collective, size_t count,
                                        psring_type type, uint64_t* sent, uint64_t* received);

/* Waits until the operation is complete, at most `timeout` seconds; then PSRING_PENDING, and the operation goes on:
 * psring_last_error() names the operation and the ranks that it waits for. */
PSRING_API psring_status psring_wait(psring_work* work, double timeout);
/* PSRING_OK if the operation is complete, PSRING_PENDING if not. Never waits for a peer. */
PSRING_API psring_status psring_test(psring_work* work);
/* Frees the handle. The operation, if it is in flight, still runs to its end. */
PSRING_API void psring_work_free(psring_work* work);

/* --- parameter servers ---
 *
 * A job with servers (coordinator --strategy ps --servers N) has one vector of f32 values. The vector is cut into
 * units, which move by themselves, and a unit into tensors. A worker has memory for each unit's values and gradients;
 * servers of the same host read and write it in place. The job's options say which optimizer the servers apply
 * (--optimizer, --lr,
 * ...), and how far workers may run ahead (--consistency).
 *
 * Step k (0, 1, ...) leads from version k to version k + 1. In each step every worker pushes every unit once. Under bsp
 * version k + 1 has the gradients of all workers in step k. Under ssp and asp each push is an update, and a pull brings
 * the newest values. If the servers only average (--optimizer-on worker), a pull of version k + 1 brings the mean
 * gradient of step k into the unit's gradients. */

/* The version of a pull after psring_vector_finish under ssp and asp: the values once all workers have finished. */
#define PSRING_FINAL UINT64_MAX

typedef struct psring_tensor {
  const char* name;
  const size_t* shape;
  size_t dimensions;
} psring_tensor;

typedef struct psring_unit {
  const char* name;
  const psring_tensor* tensors;
  size_t count; /* of tensors */
} psring_unit;

/* Makes the job's vector; there is one. All workers name the same units; no two units have the same name, nor two
 * tensors. The vector belongs to the job. */
PSRING_API psring_status psring_vector_open(psring_job* job, const psring_unit* units, size_t count,
                                            psring_vector** vector);
/* Returns a tensor's values and gradients, zeros at first. Tensors begin at multiples of 256 elements of their unit.
 * The first call for a unit makes the unit's memory, unless psring_vector_start has. */
PSRING_API psring_status psring_vector_tensor(psring_vector* vector, size_t unit, size_t tensor, float** values,
                                              float** gradients, size_t* count);
/* Waits until the servers have taken the layout. A new job begins with the values that rank 0 has in its memory. Sets
 * the version that the job begins with, and pulls it for all units. If the servers only average, no values move. */
PSRING_API psring_status psring_vector_start(psring_vector* vector, uint64_t* version);
/* Begin to send a unit's gradients, to ask for a version of its values, or both. They never wait. The unit's gradients
 * must not change until the push is complete, nor its values while a pull is in flight.
 *
 * A unit has at most one push and one pull in flight. Its pushes are of the steps version, version + 1, ... where
 * version is the one that the job began with. If the servers update, the unit's first values have to be there before
 * its first push. Under bsp and ssp the last pull before the push of step k is of version k, and has come (not before
 * the first push where servers only average). A pull asks for the version that the unit's pushes lead to; if the
 * servers update also, under bsp, for the one before or, under ssp and asp, for any before, or PSRING_FINAL. A call
 * that breaks these rules returns PSRING_USAGE, and changes nothing. */
PSRING_API psring_status psring_push(psring_vector* vector, size_t unit, uint64_t step);
PSRING_API psring_status psring_pull(psring_vector* vector, size_t unit, uint64_t version);
PSRING_API psring_status psring_push_pull(psring_vector* vector, size_t unit, uint64_t step);
/* Wait for the unit's last pull, in at least this version, or for its last push, at most `timeout` seconds; then
 * PSRING_PENDING. With a timeout of 0 they are tests. PSRING_USAGE if the version is not there, and no pull of the unit
 * is in flight. A push is complete when the servers have it; the last push of psring_push_pull when its values have
 * come. */
PSRING_API psring_status psring_wait_pull(psring_vector* vector, size_t unit, uint64_t version, double timeout);
PSRING_API psring_status psring_wait_push(psring_vector* vector, size_t unit, double timeout);
/* For programs whose units have memory only while a step needs it (ZeRO's stages 2 and 3), in place of
 * psring_vector_start, psring_push and psring_pull: the caller gives the memory of a whole unit (psring_allocate_for is
 * best, as servers of the host read and write it in place), and may release it when the push or pull is complete.
 *
 * psring_vector_agree is psring_vector_start without the values. After it, rank 0 of a new job calls
 * psring_vector_begin for each unit, with the unit's first values; any other rank may, to get them. It is a pull:
 * psring_wait_pull waits. */
PSRING_API psring_status psring_vector_agree(psring_vector* vector, uint64_t* version);
PSRING_API psring_status psring_vector_begin(psring_vector* vector, size_t unit, float* values);
PSRING_API psring_status psring_push_from(psring_vector* vector, size_t unit, uint64_t step, const float* gradients);
PSRING_API psring_status psring_pull_into(psring_vector* vector, size_t unit, uint64_t version, float* values);
/* Sets a unit's number of elements, padding included, and the bytes of payload that one push of it sends and one pull
 * receives. */
PSRING_API psring_status psring_vector_unit(psring_vector* vector, size_t unit, size_t* count, uint64_t* pushed,
                                            uint64_t* pulled);
/* Sets the bytes of payload that this worker's pushes have sent and its pulls have received so far, without those of
 * the start. Those of operations in flight may be missing. */
PSRING_API psring_status psring_vector_moved(psring_vector* vector, uint64_t* sent, uint64_t* received);
/* This worker pushes nothing more. Under ssp and asp it has to be called before PSRING_FINAL is pulled. */
PSRING_API psring_status psring_vector_finish(psring_vector* vector);
/* Saves the servers' state of this version, to which the pushes of all units lead, in the job's checkpoint folder
 * (--checkpoint-every, --checkpoint-dir); a job with --resume begins with it. Called by all workers before their next
 * push; the checkpoint is complete when rank 0's call returns. A second call for a version does nothing. bsp only. */
PSRING_API psring_status psring_vector_save(psring_vector* vector, uint64_t version);
/* Sets the mean number of others' updates between a pull and this worker's next update, since the last call. */
PSRING_API psring_status psring_vector_staleness(psring_vector* vector, double* mean);

/* The rows of trained tables, read from files without a job: of a folder of exports (psring export), or of a saved
 * model. Any number of threads may read. */
typedef struct psring_saved psring_saved;
PSRING_API psring_status psring_saved_open(const char* path, psring_saved** saved);
PSRING_API void psring_saved_free(psring_saved* saved);
/* Sets the number of tables, and the step of the newest export; UINT64_MAX for a saved model. */
PSRING_API psring_status psring_saved_tables(psring_saved* saved, size_t* count, uint64_t* step);
/* Sets the name of table `number`, which is there until psring_saved_free, and the number of values of a row. */
PSRING_API psring_status psring_saved_table(psring_saved* saved, size_t number, const char** name, size_t* width);
/* Counts the table's rows, and reads all its keys. */
PSRING_API psring_status psring_saved_count(psring_saved* saved, size_t number, uint64_t* rows);
/* Reads the rows of `count` keys into values [count, width]. Sets found[i] to 1 if key i has a row, otherwise to 0, and
 * its values to 0. */
PSRING_API psring_status psring_saved_read(psring_saved* saved, size_t number, const uint64_t* keys, size_t count,
                                           float* values, unsigned char* found);

/* --- tables ---
 *
 * In place of a vector, a job with servers may have tables: rows of `width` f32 values, by 64-bit keys, of which any
 * value is valid. A row appears when it is trained for the first time; before that its key has initial values, a
 * function of seed, table and key. The option --table-optimizer is the rule by which servers update rows. Rows without
 * a gradient do not change.
 *
 * Under --consistency bsp step k (0, 1, ...) leads from version k to version k + 1, once all workers have ended it; a
 * row's gradient is the workers' mean, in which a worker without the row counts as zeros. A worker that has no gradient
 * in a step ends the step nevertheless. Under asp each worker has steps of its own: a step's gradients are an update at
 * once, and the rows of version k are those after the worker's own first k steps and whatever others have pushed. */

typedef struct psring_table_options {
  size_t size;      /* sizeof(psring_table_options) */
  const char* name; /* no two tables have the same */
  size_t width;     /* of a row, 1 to 8192 */
  psring_type type; /* in which rows and gradients travel: PSRING_F32 or PSRING_BF16; the servers keep f32 */
  const char* init; /* initial values: "uniform:A" in [-A, A), "normal:A", "constant:A"; null: "uniform:0.05" */
  size_t most_keys; /* different keys of a worker in one fetch, or with gradients in one step, at most; 0: 65536 */
} psring_table_options;

/* Makes a table; all workers make the same ones, in the same order, before psring_table_start. The table belongs to the
 * job. */
PSRING_API psring_status psring_table_open(psring_job* job, const psring_table_options* options, psring_table** table);
/* Waits until the servers have taken the tables. Sets the step that the job begins with. */
PSRING_API psring_status psring_table_start(psring_job* job, uint64_t* step);
/* Begins to bring the rows of these keys here, in any order and with repetitions; never waits. A fetch changes nothing.
 * `version`: the current step, or the next one: then the rows come once this step is over (bsp: at all workers). */
PSRING_API psring_status psring_table_fetch(psring_table* table, const uint64_t* keys, size_t count, uint64_t version,
                                            psring_rows** rows);
/* Waits for the rows, at most `timeout` seconds; then PSRING_PENDING. */
PSRING_API psring_status psring_rows_wait(psring_rows* rows, double timeout);
/* Sets the values of the `different` rows, and the place of each of the fetch's keys among them. They stay as they are
 * until the handle is freed. The rows have to be here; as for the functions that follow. */
PSRING_API psring_status psring_rows_values(psring_rows* rows, const float** values, const int64_t** places,
                                            size_t* different);

/* A bag is some lookups one after the other; a lookup is a row, by its place. */
typedef struct psring_bags {
  size_t size;           /* sizeof(psring_bags) */
  const int64_t* places; /* of the lookups; null: those of the fetch's keys */
  size_t lookups;
  const int64_t* begins; /* the first lookup of each bag, ascending from 0; null: each lookup is a bag */
  size_t bags;
  const float* weights; /* of the lookups; null: 1 */
  int32_t mean;         /* 1: a bag is the mean of its rows; 0: their sum. An empty bag is zeros. */
} psring_bags;

/* Writes the sum or mean of each bag's rows: [bags, width]. */
PSRING_API psring_status psring_rows_pool(psring_rows* rows, const psring_bags* bags, float* out);
/* Adds the gradients of bags [bags, width] to those of their rows, in the order of the lookups. They belong to the step
 * that is ended next, whatever the version of the rows. */
PSRING_API psring_status psring_rows_add_pooled(psring_rows* rows, const psring_bags* bags, const float* gradients);
/* Adds a gradient to each of the `different` rows: [different, width]. Rows whose gradient is all zeros get none. */
PSRING_API psring_status psring_rows_add(psring_rows* rows, const float* gradients);
/* Adds gradients [count, width] to the rows of keys, which may repeat, and need not have been fetched. */
PSRING_API psring_status psring_table_add(psring_table* table, const uint64_t* keys, size_t count,
                                          const float* gradients);
/* Frees the handle. Gradients that were added stay. */
PSRING_API void psring_rows_free(psring_rows* rows);

/* Waits until the rows of the current step that were fetched are here, and the servers have taken all that was pushed
 * or assigned, at most `timeout` seconds; then PSRING_PENDING. Needed before psring_table_end_step and
 * psring_table_assign; psring_leave waits as well. */
PSRING_API psring_status psring_table_wait(psring_job* job, double timeout);
/* Begins to push the gradients that were added since the last step, of all tables, and begins the next step; never
 * waits. PSRING_USAGE if psring_table_wait would wait. `lr`: the learning rate of this step, under bsp equal at all
 * workers. */
PSRING_API psring_status psring_table_end_step(psring_job* job, double lr);
/* Drops the gradients that were added since the last step. */
PSRING_API psring_status psring_table_drop(psring_job* job);
/* Gives rows these values [count, width], and fresh optimizer state. Rank 0 alone calls it, between two steps, with at
 * most `most_keys` different keys, and the other workers wait meanwhile; psring_table_wait waits until it is done.
 * PSRING_USAGE if psring_table_wait would wait. */
PSRING_API psring_status psring_table_assign(psring_table* table, const uint64_t* keys, size_t count,
                                             const float* values);
/* Lists rows that were trained or assigned, in an order of the servers: at most `most`, from *cursor on, which is 0 at
 * first and moves on. Sets `count`; 0: there are no more. Between two steps. PSRING_PENDING after `timeout` seconds:
 * then it is called again. */
PSRING_API psring_status psring_table_list(psring_table* table, uint64_t* cursor, size_t most, uint64_t* keys,
                                           float* values, size_t* count, double timeout);
/* Set the bytes of payload of this worker's fetches and pushes so far: as the links have counted them, without those of
 * operations in flight; and by formula: 8 bytes for each different key of a fetch, a row back, and key and row for each
 * gradient. */
PSRING_API psring_status psring_table_moved(psring_job* job, uint64_t* sent, uint64_t* received);
PSRING_API psring_status psring_table_predict(psring_job* job, uint64_t* sent, uint64_t* received);

#ifdef __cplusplus
}
#endif

#endif
