package cache_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"relay/db/cache"
)

// A flood of new pairs takes bounded room, and drops none that is used meanwhile.
func TestACacheHasABound(t *testing.T) {
	const bound, busy = 1000, 7
	c := cache.New[int, string](bound)
	c.Put(-busy, "busy", 1)
	for i := range 20 * bound {
		c.Put(i, "new", 1+i%3)
		if v, ok := c.Find(-busy); !ok || v != "busy" {
			t.Fatalf("after %d others it has %q, %v", i, v, ok)
		}
		if n := c.Size(); n > bound {
			t.Fatalf("after %d pairs it has a size of %d", i, n)
		}
	}
	if c.Size() < bound/2 {
		t.Errorf("it keeps a size of %d", c.Size())
	}
	if _, ok := c.Find(0); ok {
		t.Error("it keeps what nobody has used")
	}
}

// Large pairs that are used again and again take no more room than others. One that is
// larger than the bound drops the others.
func TestLargePairs(t *testing.T) {
	const bound, size = 16 << 20, 64 << 10
	c := cache.New[int, int](bound)
	for n := range 600 {
		c.Put(n, n, size)
		for k := range n {
			if v, ok := c.Find(k); ok && v != k {
				t.Fatalf("for %d it gives %d", k, v)
			}
		}
		if c.Size() > bound {
			t.Fatalf("with %d pairs it has a size of %d", n, c.Size())
		}
	}
	c.Put(1000, 1000, 2*bound)
	c.Put(1001, 1001, size)
	if v, ok := c.Find(1000); !ok || v != 1000 {
		t.Error(v, ok)
	}
}

// A pair counts once, whatever becomes of it.
func TestAPairCountsOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := cache.New[int, int](100)
	has := map[int]int{}
	for i := range 20_000 {
		k := random.IntN(30)
		switch random.IntN(6) {
		case 0:
			c.Drop(k)
			delete(has, k)
		case 1, 2:
			c.Put(k, i, 1+random.IntN(20))
			has[k] = i
		case 3:
			if random.IntN(50) == 0 {
				c.Forget()
				clear(has)
			}
		default:
			if v, ok := c.Find(k); ok && v != has[k] {
				t.Fatalf("for %d it gives %d, not %d", k, v, has[k])
			}
		}
		if n := c.Size(); n < 0 || n > 100 {
			t.Fatalf("after %d calls it has a size of %d", i, n)
		}
	}
	for k := range 30 {
		c.Drop(k)
	}
	if n := c.Size(); n != 0 {
		t.Errorf("the empty cache has a size of %d", n)
	}
	for range 5 {
		c.Put(1, 1, 10)
	}
	if n := c.Size(); n != 10 {
		t.Errorf("one pair has a size of %d", n)
	}
}

// A pair that was read before Forget is not put after it.
func TestForgetBetweenReadAndPut(t *testing.T) {
	c := cache.New[string, int](100)
	epoch := c.Epoch()
	c.PutSince(epoch, "a", 1, 1)
	c.Forget()
	c.PutSince(epoch, "b", 2, 1)
	for _, k := range []string{"a", "b"} {
		if v, ok := c.Find(k); ok {
			t.Errorf("it has %s: %d", k, v)
		}
	}
	c.PutSince(c.Epoch(), "a", 3, 1)
	if v, ok := c.Find("a"); !ok || v != 3 {
		t.Error(v, ok)
	}
	c.Drop("a")
	if v, ok := c.Find("a"); ok {
		t.Error(v)
	}
}

// A pair that was dropped or replaced does not come back, while others find and renew it.
func TestADroppedPairStaysAway(t *testing.T) {
	c := cache.New[int, int](20)
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					for k := range 40 {
						c.Find(k)
					}
				}
			}
		})
	}
	for i := range 3000 {
		c.Put(i%40, i, 1)
		if i%2 == 0 {
			c.Drop(i % 40)
			if v, ok := c.Find(i % 40); ok {
				t.Errorf("%d was dropped, and has come back", v)
			}
		} else if v, ok := c.Find(i % 40); ok && v != i {
			t.Errorf("%d was replaced by %d, and has come back", v, i)
		}
	}
	close(stop)
	all.Wait()
}

func BenchmarkFind(b *testing.B) {
	c := cache.New[int64, int64](1 << 16)
	for i := range int64(1000) {
		c.Put(i, i, 1)
	}
	for i := range int64(b.N) {
		if v, ok := c.Find(i % 1000); !ok || v != i%1000 {
			b.Fatal(v, ok)
		}
	}
}
