/* collet in C++17: communicators, requests and memory that end themselves, buffers that know their type, and errors as
 * exceptions. What a call does, and which arguments it takes, is said in <collet/collet.h>.
 *
 *   Errors     are thrown as collet::error, with the status and the sentence of collet_last_error(). Destructors throw
 *              nothing; destroy() and wait() do. The combine() of a collet_user_op must not throw.
 *   Buffers    are what has data() and size(), arrays, (pointer, count), (pointer, count, dtype), or one(variable). {}
 *              is a buffer that this rank does not use. Counts that do not fit are COLLET_ERR_ARGUMENT before any call.
 *   In place   are the forms with one buffer.
 *   Requests   comm.start().allreduce(...) starts what comm.allreduce(...) does, and returns a collet::request.
 *   Lifetimes  Communicators, requests, memory and registrations can be moved, not copied. What was moved from, or is
 *              default-constructed, holds nothing: calls on it throw COLLET_ERR_ARGUMENT. A communicator must outlive
 *              its requests, memory and registrations, so declare it first.
 */
#ifndef COLLET_COLLET_HPP
#define COLLET_COLLET_HPP

#if __cplusplus < 201703L
#error "collet/collet.hpp needs C++17: compile with -std=c++17 or newer"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <collet/collet.h>

namespace collet {

/* ---- Errors ------------------------------------------------------------------------------------------------- */

/* Carries the status of a call, and as what() the library's sentence. */
class error : public std::runtime_error {
public:
	explicit error(collet_status status) : error(status, collet_last_error()) {}
	error(collet_status status, const std::string &sentence) : std::runtime_error(sentence), status_(status) {}
	[[nodiscard]] collet_status status() const noexcept { return status_; }

private:
	collet_status status_;
};

/* Throws unless the status is COLLET_OK: for functions of the other headers. */
inline void check(collet_status status)
{
	if (status != COLLET_OK)
		throw error(status);
}

/* ---- Buffers ------------------------------------------------------------------------------------------------ */

/* The dtype of a C++ type. Specialise it for types of your own, such as 16-bit floats. */
template <class T, class = void> struct dtype_of {
	static_assert(sizeof(T) == 0,
		"collet has no dtype for this type: specialise collet::dtype_of, or pass (pointer, count, dtype)");
};
template <> struct dtype_of<float> {
	static constexpr collet_dtype value = COLLET_F32;
};
template <> struct dtype_of<double> {
	static constexpr collet_dtype value = COLLET_F64;
};
template <> struct dtype_of<std::byte> {
	static constexpr collet_dtype value = COLLET_U8;
};
template <> struct dtype_of<bool> {
	static_assert(sizeof(bool) == 1, "COLLET_BOOL has one byte");
	static constexpr collet_dtype value = COLLET_BOOL;
};
/* Integers go by their size and sign, whatever they are called. */
template <class T>
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8>> {
	static constexpr collet_dtype value = sizeof(T) == 1 ? (std::is_signed_v<T> ? COLLET_I8 : COLLET_U8) :
		sizeof(T) == 2				     ? (std::is_signed_v<T> ? COLLET_I16 : COLLET_U16) :
		sizeof(T) == 4				     ? (std::is_signed_v<T> ? COLLET_I32 : COLLET_U32) :
							       (std::is_signed_v<T> ? COLLET_I64 : COLLET_U64);
};

namespace detail {
/* True if C has data(), which leads to elements that may be converted to T, and size(). */
template <class C, class = void> struct is_contiguous : std::false_type {};
template <class C>
struct is_contiguous<C, std::void_t<decltype(std::declval<C &>().data()), decltype(std::declval<C &>().size())>>
	: std::is_pointer<decltype(std::declval<C &>().data())> {};
template <class C> using element = std::remove_pointer_t<decltype(std::declval<C &>().data())>;
template <class C, class = void> struct is_writable : std::false_type {};
template <class C>
struct is_writable<C, std::enable_if_t<is_contiguous<C>::value>> : std::negation<std::is_const<element<C>>> {};
template <class T> inline constexpr collet_dtype dtype = dtype_of<std::remove_cv_t<T>>::value;
} // namespace detail

/* Names elements that a call writes. It owns nothing. */
class buffer {
public:
	constexpr buffer() = default;
	constexpr buffer(void *data, std::size_t count, collet_dtype dtype)
		: data_(data), count_(count), dtype_(dtype)
	{
	}
	template <class T, class = std::enable_if_t<!std::is_const_v<T>>>
	constexpr buffer(T *data, std::size_t count) : buffer(data, count, detail::dtype<T>) {}
	template <class T, std::size_t N, class = std::enable_if_t<!std::is_const_v<T>>>
	constexpr buffer(T (&array)[N]) : buffer(array, N) {}
	template <class C, class = std::enable_if_t<detail::is_writable<std::remove_reference_t<C>>::value>>
	constexpr buffer(C &&container) : buffer(container.data(), container.size()) {}

	[[nodiscard]] constexpr void *data() const noexcept { return data_; }
	[[nodiscard]] constexpr std::uint64_t count() const noexcept { return count_; }
	[[nodiscard]] constexpr collet_dtype dtype() const noexcept { return dtype_; }

private:
	void *data_ = nullptr;
	std::uint64_t count_ = 0;
	collet_dtype dtype_ = COLLET_DTYPE_COUNT;
};

/* Names elements that a call reads. It owns nothing. */
class const_buffer {
public:
	constexpr const_buffer() = default;
	constexpr const_buffer(const void *data, std::size_t count, collet_dtype dtype)
		: data_(data), count_(count), dtype_(dtype)
	{
	}
	constexpr const_buffer(const buffer &other) : const_buffer(other.data(), other.count(), other.dtype()) {}
	template <class T>
	constexpr const_buffer(const T *data, std::size_t count) : const_buffer(data, count, detail::dtype<T>)
	{
	}
	template <class T, std::size_t N> constexpr const_buffer(const T (&array)[N]) : const_buffer(array, N) {}
	template <class C, class = std::enable_if_t<detail::is_contiguous<const C>::value>>
	constexpr const_buffer(const C &container) : const_buffer(container.data(), container.size())
	{
	}

	[[nodiscard]] constexpr const void *data() const noexcept { return data_; }
	[[nodiscard]] constexpr std::uint64_t count() const noexcept { return count_; }
	[[nodiscard]] constexpr collet_dtype dtype() const noexcept { return dtype_; }

private:
	const void *data_ = nullptr;
	std::uint64_t count_ = 0;
	collet_dtype dtype_ = COLLET_DTYPE_COUNT;
};

/* Returns a buffer of one variable. */
template <class T> [[nodiscard]] constexpr auto one(T &variable)
{
	return std::conditional_t<std::is_const_v<T>, const_buffer, buffer>(&variable, 1);
}

/* Counts or displacements of the v-forms: a number for each rank, which the call copies. {} where a rank has none. */
class per_rank {
public:
	constexpr per_rank() = default;
	constexpr per_rank(const std::uint64_t *data, std::size_t size) : data_(data), size_(size) {}
	template <std::size_t N> constexpr per_rank(const std::uint64_t (&array)[N]) : per_rank(array, N) {}
	template <class C,
		class = std::enable_if_t<std::is_same_v<std::remove_cv_t<detail::element<const C>>, std::uint64_t>>>
	constexpr per_rank(const C &container) : per_rank(container.data(), container.size())
	{
	}
	[[nodiscard]] constexpr const std::uint64_t *data() const noexcept { return data_; }
	[[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }

private:
	const std::uint64_t *data_ = nullptr;
	std::size_t size_ = 0;
};

namespace detail {
/* A timeout for the library: 0 for negative times, which there mean another thing. */
template <class Rep, class Period> constexpr std::int64_t nanoseconds(std::chrono::duration<Rep, Period> time)
{
	return time.count() > 0 ? std::chrono::duration_cast<std::chrono::nanoseconds>(time).count() : 0;
}
} // namespace detail

/* ---- Requests ----------------------------------------------------------------------------------------------- */

/* A call in progress, whose buffers belong to the library. The destructor waits for its end as wait() does, and drops
 * the status: so buffers that were declared before the request can be freed behind it, also when an exception passes.
 * The call's deadline bounds this wait. To end it at once, abort the communicator first. */
class [[nodiscard]] request {
public:
	request() = default;
	/* Takes over a request of the C interface. */
	explicit request(collet_request *started) noexcept : request_(started) {}
	request(request &&other) noexcept : request_(other.release()) {}
	/* Waits for what it held before, as the destructor does. */
	request &operator=(request &&other) noexcept
	{
		request(std::move(other)).swap(*this);
		return *this;
	}
	request(const request &) = delete;
	request &operator=(const request &) = delete;
	~request() { (void)collet_request_wait(&request_); }

	/* Returns true if the request has ended, or holds nothing. Throws the error with which it ended. */
	[[nodiscard]] bool test()
	{
		const collet_status status = collet_request_test(&request_);
		if (status == COLLET_PENDING)
			return false;
		check(status);
		return true;
	}
	/* Waits for the end. Throws the error with which it ended. */
	void wait() { check(collet_request_wait(&request_)); }

	/* Waits for a time. Returns false if the request goes on. */
	template <class Rep, class Period> [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time)
	{
		const collet_status status = collet_request_wait_for(&request_, detail::nanoseconds(time));
		if (status == COLLET_PENDING)
			return false;
		check(status);
		return true;
	}

	/* Asks a send or receive to end. Returns false if data are under way, so that it goes on. */
	bool cancel()
	{
		const collet_status status = collet_request_cancel(request_);
		if (status == COLLET_PENDING)
			return false;
		check(status);
		return true;
	}

	/* True until test() or a wait has reported the end. */
	explicit operator bool() const noexcept { return request_ != nullptr; }
	[[nodiscard]] collet_request *get() const noexcept { return request_; }
	/* Gives the request to the caller, who ends it by the C interface. */
	[[nodiscard]] collet_request *release() noexcept { return std::exchange(request_, nullptr); }
	void swap(request &other) noexcept { std::swap(request_, other.request_); }

private:
	collet_request *request_ = nullptr;
};

namespace detail {
/* Calls wait(handles, count), and empties the requests that it has ended. */
template <class Requests, class Wait> collet_status wait_for(Requests &requests, Wait wait)
{
	std::vector<collet_request *> handles;
	handles.reserve(std::size(requests));
	for (request &each : requests)
		handles.push_back(each.get());
	const collet_status status = wait(handles.data(), handles.size());
	auto handle = handles.begin();
	for (request &each : requests) {
		if (!*handle++)
			(void)each.release();
	}
	return status;
}
} // namespace detail

/* Waits for all requests of a container or array. Throws, in its order, the first error. */
template <class Requests> void wait_all(Requests &&requests)
{
	check(detail::wait_for(requests, collet_request_wait_all));
}

/* Waits for one of the requests of a container or array, and returns its index; their number if all hold nothing. */
template <class Requests> std::size_t wait_any(Requests &&requests)
{
	std::size_t index = 0;
	check(detail::wait_for(requests, [&](collet_request **handles, std::size_t count) {
		return collet_request_wait_any(handles, count, &index);
	}));
	return index;
}

/* ---- Calls -------------------------------------------------------------------------------------------------- */

/* Makes calls on a communicator that it does not own. calls<void> blocks, as collet::communicator does. calls<request>,
 * which communicator::start() returns, starts requests. how is as in C, except that how->request must be NULL. */
template <class Result> class calls {
public:
	explicit calls(collet_comm *comm) noexcept : comm_(comm) {}
	[[nodiscard]] collet_comm *get() const noexcept { return comm_; }

	Result allreduce(const_buffer send, buffer recv, collet_op op, const collet_how *how = nullptr) const
	{
		fit("allreduce", send, 1, recv, 1);
		return run(how, [&](const collet_how *with) {
			return collet_allreduce(comm_, send.data(), recv.data(), send.count(), send.dtype(), op, with);
		});
	}
	Result allreduce(buffer both, collet_op op, const collet_how *how = nullptr) const
	{
		return allreduce(both, both, op, how);
	}

	Result reduce(const_buffer send, buffer recv, collet_op op, std::uint32_t root,
		const collet_how *how = nullptr) const
	{
		if (is_rank(root))
			fit("reduce", send, 1, recv, 1);
		return run(how, [&](const collet_how *with) {
			return collet_reduce(
				comm_, send.data(), recv.data(), send.count(), send.dtype(), op, root, with);
		});
	}
	Result reduce(buffer both, collet_op op, std::uint32_t root, const collet_how *how = nullptr) const
	{
		return reduce(both, both, op, root, how);
	}

	Result broadcast(const_buffer send, buffer recv, std::uint32_t root, const collet_how *how = nullptr) const
	{
		if (is_rank(root))
			fit("broadcast", send, 1, recv, 1);
		return run(how, [&](const collet_how *with) {
			return collet_broadcast(
				comm_, send.data(), recv.data(), recv.count(), recv.dtype(), root, with);
		});
	}
	Result broadcast(buffer both, std::uint32_t root, const collet_how *how = nullptr) const
	{
		return broadcast(both, both, root, how);
	}

	Result barrier(const collet_how *how = nullptr) const
	{
		return run(how, [&](const collet_how *with) { return collet_barrier(comm_, with); });
	}

	Result allgather(const_buffer send, buffer recv, const collet_how *how = nullptr) const
	{
		fit("allgather", send, size(), recv, 1);
		return run(how, [&](const collet_how *with) {
			return collet_allgather(comm_, send.data(), recv.data(), send.count(), send.dtype(), with);
		});
	}
	Result allgather(buffer both, const collet_how *how = nullptr) const
	{
		return allgather(own_block("allgather", both), both, how);
	}

	Result allgatherv(const_buffer send, buffer recv, per_rank counts, per_rank displacements,
		const collet_how *how = nullptr) const
	{
		fit_types("allgatherv", send, recv);
		fit_blocks("allgatherv", "recv", recv, counts, displacements);
		return run(how, [&](const collet_how *with) {
			return collet_allgatherv(comm_, send.data(), send.count(), recv.data(), counts.data(),
				displacements.data(), send.dtype(), with);
		});
	}

	Result reduce_scatter(const_buffer send, buffer recv, collet_op op, const collet_how *how = nullptr) const
	{
		fit("reduce_scatter", send, 1, recv, size());
		return run(how, [&](const collet_how *with) {
			return collet_reduce_scatter(
				comm_, send.data(), recv.data(), recv.count(), recv.dtype(), op, with);
		});
	}
	Result reduce_scatter(buffer both, collet_op op, const collet_how *how = nullptr) const
	{
		return reduce_scatter(both, own_block("reduce_scatter", both), op, how);
	}
	Result reduce_scatterv(const_buffer send, per_rank counts, per_rank displacements, buffer recv, collet_op op,
		const collet_how *how = nullptr) const
	{
		fit_types("reduce_scatterv", send, recv);
		fit_blocks("reduce_scatterv", "send", send, counts, displacements);
		return run(how, [&](const collet_how *with) {
			return collet_reduce_scatterv(comm_, send.data(), counts.data(), displacements.data(),
				recv.data(), recv.count(), recv.dtype(), op, with);
		});
	}

	Result gather(const_buffer send, buffer recv, std::uint32_t root, const collet_how *how = nullptr) const
	{
		if (is_rank(root))
			fit("gather", send, size(), recv, 1);
		return run(how, [&](const collet_how *with) {
			return collet_gather(comm_, send.data(), recv.data(), send.count(), send.dtype(), root, with);
		});
	}

	Result gatherv(const_buffer send, buffer recv, per_rank counts, per_rank displacements, std::uint32_t root,
		const collet_how *how = nullptr) const
	{
		if (is_rank(root)) {
			fit_types("gatherv", send, recv);
			fit_blocks("gatherv", "recv", recv, counts, displacements);
		}
		return run(how, [&](const collet_how *with) {
			return collet_gatherv(comm_, send.data(), send.count(), recv.data(), counts.data(),
				displacements.data(), send.dtype(), root, with);
		});
	}

	Result scatter(const_buffer send, buffer recv, std::uint32_t root, const collet_how *how = nullptr) const
	{
		if (is_rank(root))
			fit("scatter", send, 1, recv, size());
		return run(how, [&](const collet_how *with) {
			return collet_scatter(comm_, send.data(), recv.data(), recv.count(), recv.dtype(), root, with);
		});
	}

	Result scatterv(const_buffer send, per_rank counts, per_rank displacements, buffer recv, std::uint32_t root,
		const collet_how *how = nullptr) const
	{
		if (is_rank(root)) {
			fit_types("scatterv", send, recv);
			fit_blocks("scatterv", "send", send, counts, displacements);
		}
		return run(how, [&](const collet_how *with) {
			return collet_scatterv(comm_, send.data(), counts.data(), displacements.data(), recv.data(),
				recv.count(), recv.dtype(), root, with);
		});
	}

	Result alltoall(const_buffer send, buffer recv, const collet_how *how = nullptr) const
	{
		fit("alltoall", send, 1, recv, 1);
		const std::uint64_t count = block_count("alltoall", send);
		return run(how, [&](const collet_how *with) {
			return collet_alltoall(comm_, send.data(), recv.data(), count, send.dtype(), with);
		});
	}
	Result alltoall(buffer both, const collet_how *how = nullptr) const { return alltoall(both, both, how); }

	Result alltoallv(const_buffer send, per_rank send_counts, per_rank send_displacements, buffer recv,
		per_rank recv_counts, per_rank recv_displacements, const collet_how *how = nullptr) const
	{
		fit_types("alltoallv", send, recv);
		fit_blocks("alltoallv", "send", send, send_counts, send_displacements);
		fit_blocks("alltoallv", "recv", recv, recv_counts, recv_displacements);
		return run(how, [&](const collet_how *with) {
			return collet_alltoallv(comm_, send.data(), send_counts.data(), send_displacements.data(),
				recv.data(), recv_counts.data(), recv_displacements.data(), send.dtype(), with);
		});
	}

	Result send(const_buffer buf, std::uint32_t peer, std::uint32_t tag = 0, const collet_how *how = nullptr) const
	{
		return run(how, [&](const collet_how *with) {
			return collet_send(comm_, buf.data(), buf.count(), buf.dtype(), peer, tag, with);
		});
	}
	Result recv(buffer buf, std::uint32_t source, std::uint32_t tag = 0, collet_received *received = nullptr,
		const collet_how *how = nullptr) const
	{
		return run(how, [&](const collet_how *with) {
			return collet_recv(comm_, buf.data(), buf.count(), buf.dtype(), source, tag, received, with);
		});
	}
	Result sendrecv(const_buffer send, std::uint32_t to, std::uint32_t send_tag, buffer recv, std::uint32_t from,
		std::uint32_t recv_tag, collet_received *received = nullptr, const collet_how *how = nullptr) const
	{
		fit_types("sendrecv", send, recv);
		return run(how, [&](const collet_how *with) {
			return collet_sendrecv(comm_, send.data(), send.count(), to, send_tag, recv.data(),
				recv.count(), from, recv_tag, send.dtype(), received, with);
		});
	}

protected:
	collet_comm *comm_;

private:
	[[nodiscard]] std::uint64_t size() const noexcept { return collet_comm_size(comm_); }
	[[nodiscard]] bool is_rank(std::uint32_t rank) const noexcept { return rank == collet_comm_rank(comm_); }

	template <class Call> Result run(const collet_how *how, Call call) const
	{
		if (how && how->request)
			throw error(COLLET_ERR_ARGUMENT, "how.request is set: comm.start() starts requests");
		if constexpr (std::is_void_v<Result>) {
			check(call(how));
		} else {
			collet_request *started = nullptr;
			collet_how with = how ? *how : collet_how{};
			with.request = &started;
			check(call(&with));
			return Result(started);
		}
	}

	static std::string describe(const char *name, const_buffer elements)
	{
		const char *dtype = collet_dtype_name(elements.dtype());
		return std::string(name) + " has " + std::to_string(elements.count()) + " elements of " +
			(dtype ? dtype : "no type");
	}

	static void fit_types(const char *function, const_buffer send, const_buffer recv)
	{
		if (send.dtype() != recv.dtype())
			throw error(COLLET_ERR_ARGUMENT,
				std::string(function) + ": " + describe("send", send) + ", " + describe("recv", recv) +
					"; give both one type");
	}

	/* Throws unless both buffers have one type, and send_blocks * send as many elements as recv_blocks * recv. */
	static void fit(const char *function, const_buffer send, std::uint64_t send_blocks, const_buffer recv,
		std::uint64_t recv_blocks)
	{
		fit_types(function, send, recv);
		const std::uint64_t blocks = send_blocks * recv_blocks; /* one of them is 1 */
		const const_buffer &whole = send_blocks == 1 ? send : recv, &part = send_blocks == 1 ? recv : send;
		if (blocks != 0 && (whole.count() % blocks != 0 || whole.count() / blocks != part.count()))
			throw error(COLLET_ERR_ARGUMENT,
				std::string(function) + ": " + describe("send", send) + ", " + describe("recv", recv) +
					(blocks == 1 ? "; they must have equally many" :
						       "; the longer one must have " + std::to_string(blocks) +
								" times as many, a block for each rank"));
	}

	/* Throws unless there is a block for each rank, inside the elements. */
	void fit_blocks(const char *function, const char *name, const_buffer elements, per_rank counts,
		per_rank displacements) const
	{
		if (!comm_)
			return; /* the call says so */
		if (counts.size() != size() || displacements.size() != size())
			throw error(COLLET_ERR_ARGUMENT,
				std::string(function) + ": " + std::to_string(counts.size()) + " counts and " +
					std::to_string(displacements.size()) + " displacements for " +
					std::to_string(size()) + " ranks");
		for (std::size_t r = 0; r < counts.size(); r++) {
			const std::uint64_t count = counts.data()[r], first = displacements.data()[r];
			if (count > elements.count() || first > elements.count() - count)
				throw error(COLLET_ERR_ARGUMENT,
					std::string(function) + ": " + describe(name, elements) + "; block " +
						std::to_string(r) + " has " + std::to_string(count) + " from " +
						std::to_string(first) + " on");
		}
	}

	/* Returns the elements of a block, of which the buffer has one for each rank. */
	std::uint64_t block_count(const char *function, const_buffer whole) const
	{
		const std::uint64_t blocks = size();
		if (blocks != 0 && whole.count() % blocks != 0)
			throw error(COLLET_ERR_ARGUMENT,
				std::string(function) + ": " + describe("the buffer", whole) + ", which is no block " +
					"for each of " + std::to_string(blocks) + " ranks");
		return blocks != 0 ? whole.count() / blocks : 0;
	}

	buffer own_block(const char *function, buffer whole) const
	{
		const std::uint64_t count = block_count(function, whole);
		const std::uint64_t first = collet_comm_rank(comm_) * count;
		const std::size_t bytes = collet_dtype_bytes(whole.dtype());
		return buffer(static_cast<char *>(whole.data()) + first * bytes, count, whole.dtype());
	}
};

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* Elements in memory of collet_mem_alloc(), zeroed. */
template <class T> class [[nodiscard]] memory {
	static_assert(std::is_trivially_copyable_v<T>, "memory of collet_mem_alloc() holds plain elements");

public:
	memory() = default;
	memory(collet_comm *comm, std::size_t count) : comm_(comm)
	{
		if (count > SIZE_MAX / sizeof(T))
			throw error(COLLET_ERR_MEMORY, "allocate: more elements than memory has bytes");
		void *start = nullptr;
		check(collet_mem_alloc(comm, &start, count * sizeof(T)));
		data_ = static_cast<T *>(start);
		size_ = count;
	}
	memory(memory &&other) noexcept { swap(other); }
	memory &operator=(memory &&other) noexcept
	{
		memory(std::move(other)).swap(*this);
		return *this;
	}
	memory(const memory &) = delete;
	memory &operator=(const memory &) = delete;
	/* Memory that a pending call uses stays allocated until the communicator's end. */
	~memory()
	{
		if (data_)
			(void)collet_mem_free(comm_, data_);
	}

	[[nodiscard]] T *data() noexcept { return data_; }
	[[nodiscard]] const T *data() const noexcept { return data_; }
	[[nodiscard]] std::size_t size() const noexcept { return size_; }
	[[nodiscard]] T *begin() noexcept { return data_; }
	[[nodiscard]] T *end() noexcept { return data_ + size_; }
	[[nodiscard]] const T *begin() const noexcept { return data_; }
	[[nodiscard]] const T *end() const noexcept { return data_ + size_; }
	[[nodiscard]] T &operator[](std::size_t i) noexcept { return data_[i]; }
	[[nodiscard]] const T &operator[](std::size_t i) const noexcept { return data_[i]; }
	void swap(memory &other) noexcept
	{
		std::swap(comm_, other.comm_);
		std::swap(data_, other.data_);
		std::swap(size_, other.size_);
	}

private:
	collet_comm *comm_ = nullptr;
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

/* Keeps memory of the caller registered. */
class [[nodiscard]] registration {
public:
	registration() = default;
	registration(collet_comm *comm, buffer elements) : comm_(comm)
	{
		check(collet_mem_register(
			comm, elements.data(), elements.count() * collet_dtype_bytes(elements.dtype())));
		data_ = elements.data();
	}
	registration(registration &&other) noexcept { swap(other); }
	registration &operator=(registration &&other) noexcept
	{
		registration(std::move(other)).swap(*this);
		return *this;
	}
	registration(const registration &) = delete;
	registration &operator=(const registration &) = delete;
	~registration()
	{
		if (data_)
			(void)collet_mem_deregister(comm_, data_);
	}

	[[nodiscard]] void *data() const noexcept { return data_; }
	void swap(registration &other) noexcept
	{
		std::swap(comm_, other.comm_);
		std::swap(data_, other.data_);
	}

private:
	collet_comm *comm_ = nullptr;
	void *data_ = nullptr;
};

/* ---- Communicators ------------------------------------------------------------------------------------------ */

/* Owns a communicator, and destroys it. */
class [[nodiscard]] communicator : public calls<void> {
public:
	communicator() noexcept : calls(nullptr) {}
	/* Takes over a communicator of the C interface. */
	explicit communicator(collet_comm *comm) noexcept : calls(comm) {}
	communicator(communicator &&other) noexcept : calls(other.release()) {}
	/* Destroys what it held before. */
	communicator &operator=(communicator &&other) noexcept
	{
		communicator(std::move(other)).swap(*this);
		return *this;
	}
	communicator(const communicator &) = delete;
	communicator &operator=(const communicator &) = delete;
	~communicator()
	{
		if (comm_)
			(void)collet_comm_destroy(&comm_);
	}

	/* Joins all ranks, by the environment. */
	static communicator create() { return make(nullptr); }
	static communicator create(const collet_options &options) { return make(&options); }
	/* Holds nothing on ranks with COLLET_NO_COLOR. */
	communicator split(std::uint32_t color, std::uint32_t key = 0) const
	{
		collet_comm *part = nullptr;
		check(collet_comm_split(comm_, color, key, &part));
		return communicator(part);
	}
	/* Called only by these ranks, which are numbered anew in this order. */
	communicator create_group(const std::vector<std::uint32_t> &ranks, std::uint32_t tag = 0) const
	{
		collet_comm *group = nullptr;
		check(collet_comm_create_group(
			comm_, ranks.data(), static_cast<std::uint32_t>(ranks.size()), tag, &group));
		return communicator(group);
	}
	communicator shrink() const
	{
		collet_comm *shrunk = nullptr;
		check(collet_comm_shrink(comm_, &shrunk));
		return communicator(shrunk);
	}
	/* Sets the timeout of later calls that set none. */
	template <class Rep, class Period> void set_timeout(std::chrono::duration<Rep, Period> time) const
	{
		check(collet_comm_set_timeout(comm_, detail::nanoseconds(time)));
	}
	void abort() const noexcept { collet_comm_abort(comm_); }
	void destroy() { check(collet_comm_destroy(&comm_)); }

	/* Advances all calls for a time. Returns true as soon as one has ended, of this communicator's context. */
	template <class Rep, class Period> bool progress(std::chrono::duration<Rep, Period> time) const
	{
		const collet_status status = collet_progress(comm_, detail::nanoseconds(time));
		if (status == COLLET_PENDING)
			return false;
		check(status);
		return true;
	}
	/* Returns a descriptor to poll when progress() has returned false. It is the library's. */
	[[nodiscard]] int descriptor() const
	{
		int descriptor = -1;
		check(collet_comm_descriptor(comm_, &descriptor));
		return descriptor;
	}

	/* Returns the calls that start requests instead of blocking. */
	[[nodiscard]] calls<request> start() const noexcept { return calls<request>(comm_); }

	explicit operator bool() const noexcept { return comm_ != nullptr; }
	/* Gives the communicator to the caller, who destroys it. */
	[[nodiscard]] collet_comm *release() noexcept { return std::exchange(comm_, nullptr); }
	void swap(communicator &other) noexcept { std::swap(comm_, other.comm_); }

	/* Returns the status that ended it, or COLLET_OK. */
	[[nodiscard]] collet_status status() const noexcept { return collet_comm_error(comm_); }
	[[nodiscard]] std::uint32_t rank() const noexcept { return collet_comm_rank(comm_); }
	[[nodiscard]] std::uint32_t size() const noexcept { return collet_comm_size(comm_); }
	[[nodiscard]] std::uint32_t local_rank() const noexcept { return collet_comm_local_rank(comm_); }
	[[nodiscard]] std::uint32_t local_size() const noexcept { return collet_comm_local_size(comm_); }
	[[nodiscard]] std::string host(std::uint32_t rank) const
	{
		const char *name = collet_comm_host(comm_, rank);
		if (!name)
			throw error(COLLET_ERR_ARGUMENT,
				"host: there is no rank " + std::to_string(rank) + " of " + std::to_string(size()));
		return name;
	}
	[[nodiscard]] std::vector<collet_stat> stats() const
	{
		std::vector<collet_stat> rows;
		std::size_t count = 0;
		do {
			rows.resize(count);
			check(collet_comm_stats(comm_, rows.data(), rows.size(), &count));
		} while (count > rows.size());
		rows.resize(count);
		return rows;
	}

	template <class T> memory<T> allocate(std::size_t count) const { return memory<T>(comm_, count); }
	registration register_memory(buffer elements) const { return registration(comm_, elements); }

private:
	static communicator make(const collet_options *options)
	{
		collet_comm *comm = nullptr;
		check(collet_comm_create(&comm, options));
		return communicator(comm);
	}
};

} // namespace collet

#endif
