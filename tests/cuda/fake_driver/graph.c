/* Graphs: nodes that can be executed repeatedly. Nodes that do not depend on each other may run in any order, and at
 * the same time. Here, those captured last run first. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

struct CUgraph_st {
	struct fake_nodes nodes;
};

/* One launch at a time, as in the driver: launches of a graph run one after the other, whatever streams they are on. */
struct CUgraphExec_st {
	struct fake_nodes nodes;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t launched, ended;
	unsigned users;              /* the program, until it destroys the graph, and queued launches */
};

void fake_nodes_free(struct fake_nodes *nodes)
{
	for (uint32_t n = 0; n < nodes->count; n++)
		free(nodes->first[n].job);
	free(nodes->first);
	*nodes = (struct fake_nodes){ 0 };
}

cu_graph fake_graph_of(struct fake_nodes *nodes)
{
	struct CUgraph_st *made = calloc(1, sizeof(*made));
	if (!made) {
		fake_nodes_free(nodes);
		return NULL;
	}
	made->nodes = *nodes;
	fake_alive(1);
	return made;
}

static struct fake_nodes copy_nodes(const struct fake_nodes *nodes)
{
	struct fake_nodes copy = *nodes;
	copy.capacity = copy.count;
	copy.first = calloc(copy.count + 1, sizeof(*copy.first));
	if (!copy.first)
		abort();
	for (uint32_t n = 0; n < copy.count; n++) {
		const struct fake_node *node = &nodes->first[n];
		copy.first[n] = (struct fake_node){ malloc(node->job->bytes), node->after };
		if (!copy.first[n].job)
			abort();
		memcpy(copy.first[n].job, node->job, node->job->bytes);
	}
	return copy;
}

/* ---- Launches ---- */

struct launch {
	struct fake_job job;
	struct CUgraphExec_st *exec;
	uint64_t number;
	cu_context context;
};

enum state { WAITING, BEGUN, DONE };

struct walk {
	const struct fake_nodes *nodes;
	cu_context context;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum state *states;
	uint32_t begun;
	cu_result result;
};

/* Needs the lock. Returns NULL if no node is ready. */
static struct fake_node *find_ready(const struct walk *walk)
{
	for (uint32_t n = walk->nodes->count; n--;) {
		struct fake_node *node = &walk->nodes->first[n];
		bool ready = walk->states[n] == WAITING;
		for (uint32_t t = 0; t < node->after.count && ready; t++)
			ready = walk->states[node->after.nodes[t]] == DONE;
		if (ready)
			return node;
	}
	return NULL;
}

static void *walk_on(void *argument)
{
	struct walk *walk = argument;
	pthread_mutex_lock(&walk->lock);
	while (walk->begun < walk->nodes->count) {
		struct fake_node *node = find_ready(walk);
		if (!node) {
			pthread_cond_wait(&walk->changed, &walk->lock);
			continue;
		}
		walk->states[node - walk->nodes->first] = BEGUN;
		walk->begun++;
		const bool fine = walk->result == CU_OK && !fake_is_broken(walk->context);
		pthread_mutex_unlock(&walk->lock);
		const cu_result result = fine ? node->job->run(node->job) : CU_ILLEGAL_ADDRESS;
		pthread_mutex_lock(&walk->lock);
		walk->states[node - walk->nodes->first] = DONE;
		walk->result = walk->result != CU_OK ? walk->result : result;
		pthread_cond_broadcast(&walk->changed);
	}
	pthread_mutex_unlock(&walk->lock);
	return NULL;
}

/* One thread for each branch. */
static cu_result walk_all(const struct fake_nodes *nodes, cu_context context)
{
	struct walk walk = { .nodes = nodes, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER, .states = calloc(nodes->count + 1, sizeof(*walk.states)) };
	pthread_t threads[FAKE_TIPS];
	if (!walk.states)
		abort();
	for (uint32_t t = 1; t < nodes->width; t++)
		if (pthread_create(&threads[t], NULL, walk_on, &walk) != 0)
			abort();
	(void)walk_on(&walk);
	for (uint32_t t = 1; t < nodes->width; t++)
		pthread_join(threads[t], NULL);
	free(walk.states);
	return walk.result;
}

/* Releases one use; takes the lock. The last one frees everything. */
static void release(struct CUgraphExec_st *exec)
{
	const bool last = --exec->users == 0;
	pthread_mutex_unlock(&exec->lock);
	if (!last)
		return;
	fake_nodes_free(&exec->nodes);
	pthread_cond_destroy(&exec->changed);
	pthread_mutex_destroy(&exec->lock);
	free(exec);
}

static cu_result run_launch(struct fake_job *job)
{
	const struct launch *launch = (const struct launch *)job;
	struct CUgraphExec_st *exec = launch->exec;
	pthread_mutex_lock(&exec->lock);
	while (exec->ended < launch->number)
		pthread_cond_wait(&exec->changed, &exec->lock);
	pthread_mutex_unlock(&exec->lock);
	const cu_result result = job->stream_failed ? CU_OK : walk_all(&exec->nodes, launch->context);
	pthread_mutex_lock(&exec->lock);
	exec->ended++;
	pthread_cond_broadcast(&exec->changed);
	release(exec);
	return result;
}

/* ---- Driver functions ---- */

FAKE_API cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuGraphInstantiate", &context);
	if (result != CU_OK)
		return result;
	if (!graph || flags)
		return CU_INVALID_VALUE;
	struct CUgraphExec_st *made = calloc(1, sizeof(*made));
	if (!made)
		return CU_OUT_OF_MEMORY;
	made->users = 1;
	made->nodes = copy_nodes(&graph->nodes);
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->changed, NULL);
	fake_alive(1);
	*exec = made;
	return CU_OK;
}

FAKE_API cu_result cuGraphDestroy(cu_graph graph)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!graph)
		return CU_INVALID_VALUE;
	fake_nodes_free(&graph->nodes);
	free(graph);
	fake_alive(-1);
	return CU_OK;
}

FAKE_API cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream)
{
	cu_context context;
	cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!exec)
		return CU_INVALID_VALUE;
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	result = fake_capture_forbids(fake_stream_find(stream));
	if (result != CU_OK)
		return result;
	struct launch *launch = malloc(sizeof(*launch));
	if (!launch)
		return CU_OUT_OF_MEMORY;
	pthread_mutex_lock(&exec->lock);
	*launch = (struct launch){ { .run = run_launch, .always = true }, exec, exec->launched++,
		context };
	exec->users++;
	pthread_mutex_unlock(&exec->lock);
	return fake_enqueue(stream, &launch->job);
}

FAKE_API cu_result cuGraphExecDestroy(cu_graph_exec exec)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!exec)
		return CU_INVALID_VALUE;
	fake_alive(-1);
	pthread_mutex_lock(&exec->lock);
	release(exec);
	return CU_OK;
}
