/* Runs bodies in C++ as ranks. */
#ifndef COLLET_TESTS_CXX_BODIES_H
#define COLLET_TESTS_CXX_BODIES_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <collet/collet.hpp>

extern "C" {
#include <cmocka.h>

#include "ranks.h"
}

using cxx_body = void(struct rank *rank, collet::communicator &comm);

/* Lends the rank's communicator to a body. An exception that leaves the body is a failed check. */
template <cxx_body *Body> void run_body(struct rank *rank)
{
	collet::communicator comm(rank->comm);
	try {
		Body(rank, comm);
	} catch (const std::exception &thrown) {
		rank_check(rank, false, "thrown: %s", thrown.what());
	}
	rank->comm = comm.release();
}

/* Runs a body as three processes, and as three threads. */
template <cxx_body *Body> void must_pass()
{
	for (enum ranks_mode mode : { RANKS_PROCESSES, RANKS_THREADS }) {
		struct ranks_options options = {};
		options.mode = mode;
		options.size = 3;
		ranks_must_pass(&options, run_body<Body>);
	}
}

/* Checks that the call throws this status, with a sentence that contains these words. */
template <class Call> void must_throw(struct rank *rank, collet_status wanted, const char *words, Call call)
{
	try {
		call();
		rank_check(rank, false, "\"%s\" was not thrown", words);
	} catch (const collet::error &thrown) {
		const bool is_said = std::string(thrown.what()).find(words) != std::string::npos;
		rank_check(rank, thrown.status() == wanted && is_said, "%s: %s; wanted %s, \"%s\"",
			collet_status_name(thrown.status()), thrown.what(), collet_status_name(wanted), words);
	}
}

#endif
