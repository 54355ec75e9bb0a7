/* Does in C++ what ../c/average.c does: averages gradients by all-reduce, and fits y = 3a - 2b + 1 on all ranks.
 *
 *   c++ -std=c++17 average.cc $(pkg-config --cflags --libs collet) -o average
 *   collet-run -n 2 ./average */
#include <array>
#include <cstdint>
#include <cstdio>

#include <collet/collet.hpp>

namespace {

constexpr std::size_t WEIGHTS = 3;
constexpr std::uint64_t BATCH = 20, STEPS = 100;
constexpr float RATE = 0.1f;

/* Returns input k of a sample, the same on every rank: a number from -1 to 1. */
float input(std::uint64_t sample, std::uint64_t k)
{
	const std::uint64_t hash = (2 * sample + k + 1) * 0x9e3779b97f4a7c15u;
	return static_cast<float>(hash >> 40) / (1 << 23) - 1;
}

/* Returns the gradients of a batch's mean squared error, and behind them this error. */
std::array<float, WEIGHTS + 1> compute_gradients(const std::array<float, WEIGHTS> &weights, std::uint64_t first)
{
	std::array<float, WEIGHTS + 1> gradients{};
	for (std::uint64_t sample = first; sample < first + BATCH; sample++) {
		const float a = input(sample, 0), b = input(sample, 1);
		const float error = weights[0] * a + weights[1] * b + weights[2] - (3 * a - 2 * b + 1);
		gradients[0] += 2 * error * a / BATCH;
		gradients[1] += 2 * error * b / BATCH;
		gradients[2] += 2 * error / BATCH;
		gradients[WEIGHTS] += error * error / BATCH;
	}
	return gradients;
}

} // namespace

int main()
try {
	const auto comm = collet::communicator::create();
	std::array<float, WEIGHTS> weights{};
	for (std::uint64_t step = 0; step < STEPS; step++) {
		auto gradients = compute_gradients(weights, (step * comm.size() + comm.rank()) * BATCH);
		comm.allreduce(gradients, COLLET_AVERAGE);
		for (std::size_t w = 0; w < WEIGHTS; w++)
			weights[w] -= RATE * gradients[w];
		if (comm.rank() == 0 && (step + 1) % 20 == 0)
			std::printf("step %d: loss %.6f\n", static_cast<int>(step) + 1, gradients[WEIGHTS]);
	}
} catch (const collet::error &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
