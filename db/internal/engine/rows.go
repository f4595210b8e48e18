package engine

import (
	"math"

	"relay/db/internal/sqlite"
)

// Page reads up to limit rows, and closes r. more reports whether there is a further one.
func Page[T any](r *sqlite.Rows, limit int, read func(*sqlite.Rows) (T, error)) (all []T, more bool, err error) {
	for r.Next() {
		if more = len(all) == limit; more {
			break
		}
		v, err := read(r)
		if err != nil {
			r.Close()
			return nil, false, err
		}
		all = append(all, v)
	}
	return all, more, r.Close()
}

// All reads all rows, and closes r.
func All[T any](r *sqlite.Rows, read func(*sqlite.Rows) T) ([]T, error) {
	all, _, err := Page(r, math.MaxInt, func(r *sqlite.Rows) (T, error) { return read(r), nil })
	return all, err
}
