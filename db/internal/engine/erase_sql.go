package engine

// Erasing runs f so that SQLite overwrites what f removes, even where whole pages become free.
// That costs writes, so it is not for every job.
func (t *Tx) Erasing(f func() error) error {
	if _, err := t.C.Row(nil, "PRAGMA secure_delete = ON"); err != nil {
		return err
	}
	err := f()
	if _, off := t.C.Row(nil, "PRAGMA secure_delete = FAST"); err == nil {
		err = off
	}
	return err
}
