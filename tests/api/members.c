#include "members.h"

bool members_are(struct rank *rank, collet_comm *comm, const uint32_t *wanted, uint32_t count)
{
	uint32_t members[RANKS_MOST];
	if (!rank_check(
		    rank, collet_comm_size(comm) == count, "%u members instead of %u", collet_comm_size(comm), count) ||
		!rank_ok(rank, collet_allgather(comm, &rank->rank, members, 1, COLLET_U32, NULL),
			"allgather of the members"))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (!rank_check(
			    rank, members[i] == wanted[i], "member %u is %u, should be %u", i, members[i], wanted[i]))
			return false;
	return rank_check(rank, wanted[collet_comm_rank(comm)] == rank->rank, "rank %u is not itself",
		       collet_comm_rank(comm)) &&
	       rank_check(rank,
		       collet_comm_local_size(comm) == count && collet_comm_local_rank(comm) == collet_comm_rank(comm),
		       "local rank %u of %u", collet_comm_local_rank(comm), collet_comm_local_size(comm)) &&
	       rank_check(rank, collet_comm_host(comm, 0) && !collet_comm_host(comm, count), "hosts");
}
