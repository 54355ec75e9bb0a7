/* The first program in C++: every rank gives its number plus one, every rank gets the sum.
 *
 *   c++ -std=c++17 allreduce.cc $(pkg-config --cflags --libs collet) -o allreduce
 *   collet-run -n 4 ./allreduce */
#include <cstdio>
#include <vector>

#include <collet/collet.hpp>

int main()
try {
	const auto comm = collet::communicator::create();
	const float own = static_cast<float>(comm.rank() + 1);
	const std::vector<float> numbers{ own, 2 * own, 3 * own, 4 * own };
	std::vector<float> sums(numbers.size());

	comm.allreduce(numbers, sums, COLLET_SUM);

	std::printf("rank %u of %u: %g %g %g %g\n", comm.rank(), comm.size(), sums[0], sums[1], sums[2], sums[3]);
} catch (const collet::error &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
