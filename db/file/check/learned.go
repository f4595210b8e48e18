package check

// checkLearned checks what discovery has learned (db/learning/learned_sql.go).
func (a *audit) checkLearned() error {
	err := a.ofRows(`SELECT 'what was learned of Mecha ' || mecha || ': ' || reason FROM (SELECT l.mecha, CASE
		WHEN m.id IS NULL THEN 'there is no such Mecha'
		WHEN m.removed_at IS NOT NULL AND words > 0 THEN 'the Mecha is removed'
		WHEN off NOT IN (0, 1) OR exchanges < 0 OR position <= 0 THEN 'it has a value that is not allowed'
		WHEN off = 1 AND words > 0 THEN 'its profile wants nothing to be learned'
		WHEN words <> (SELECT coalesce(sum(w.words), 0) FROM learned w WHERE w.mecha = l.mecha)
			THEN 'it has another number of words than it says'
		WHEN words > 0 AND NOT EXISTS (SELECT 1 FROM learned w WHERE w.mecha = l.mecha AND first = '')
			THEN 'its first words are missing'
		END AS reason FROM learner l LEFT JOIN mecha m ON m.id = l.mecha) WHERE reason IS NOT NULL`)
	if err != nil {
		return err
	}
	err = a.ofRows(`SELECT 'words were learned of Mecha ' || mecha || ', of which nothing was' FROM learned l
		WHERE NOT EXISTS (SELECT 1 FROM learner o WHERE o.mecha = l.mecha) GROUP BY mecha`)
	if err != nil {
		return err
	}
	err = a.ofRows(`SELECT 'a word of Mecha ' || mecha || ' has no count' FROM learned WHERE words < 0
		OR (words = 0) <> (length(counts) = 0)`)
	if err != nil {
		return err
	}
	return a.ofMessages(reasons("position", `
		WHEN sought = '' THEN 'it has a search without words'
		WHEN sought IS NOT NULL AND state = 3 THEN 'it has expired, but keeps the words of a search'`, "message"))
}
