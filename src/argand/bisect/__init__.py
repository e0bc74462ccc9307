"""bisect: which part of the compiler a failure comes from, and the smallest program that shows it."""
