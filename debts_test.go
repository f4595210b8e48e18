package main

// debts are the sizes that are still above their limits (TestSizes).
var debts = []size{}
