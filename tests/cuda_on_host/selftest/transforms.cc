// Plans transforms in several threads at once: none is lost, and each is its thread's.
#include <stdio.h>

#include <atomic>
#include <complex>
#include <thread>
#include <vector>

typedef std::complex<float> Single;

extern "C" {
int cufftPlanMany(int*, int, int*, int*, int, int, int*, int, int, int, int);
int cufftExecC2C(int, Single*, Single*, int);
int cufftDestroy(int);
}

constexpr int THREADS = 4, PLANS = 10000, KEPT_OF = 20, C2C = 0x29, FORWARD = -1;
// Threads that have begun: all wait for the last one.
static std::atomic<int> begun;

// Makes and destroys plans for so many points; some stay.
static void make(int points, std::vector<int>* kept) {
  begun++;
  while (begun < THREADS) std::this_thread::yield();
  for (int i = 0; i < PLANS; i++) {
    int plan = 0;
    cufftPlanMany(&plan, 1, &points, &points, 1, points, &points, 1, points, C2C, 1);
    if (i % KEPT_OF) cufftDestroy(plan);
    else kept->push_back(plan);
  }
}

// Whether a plan makes so many ones their number and zeros, and is there to be destroyed.
static bool transforms(int plan, int points) {
  Single values[THREADS + 1];
  for (Single& value : values) value = 1;
  bool good = cufftExecC2C(plan, values, values, FORWARD) == 0;
  for (int i = 0; i <= THREADS; i++) good &= std::abs(values[i] - Single(i == 0 ? (float)points : i < points ? 0 : 1)) < 1e-5f;
  return good && cufftDestroy(plan) == 0;
}

int main() {
  std::vector<int> kept[THREADS];
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; i++) threads.emplace_back(make, i + 2, &kept[i]);
  for (std::thread& thread : threads) thread.join();
  bool good = true;
  for (int i = 0; i < THREADS; i++)
    for (int plan : kept[i]) good &= transforms(plan, i + 2);
  printf("%s threads plan transforms at the same time\n", good ? "ok    " : "FAILED");
  return !good;
}
